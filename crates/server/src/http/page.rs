//! The status page and the page to browse the API: files that are part of the program.

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{Problem, Service};

/// One file.
struct Asset {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! asset {
    ($path:literal, $kind:expr, $file:literal) => {
        Asset { path: $path, kind: $kind, content: include_str!(concat!("../../page/", $file)) }
    };
}

const ASSETS: [Asset; 21] = [
    asset!("/", HTML, "index.html"),
    asset!("/page.css", STYLE, "page.css"),
    asset!("/blocks.js", SCRIPT, "blocks.js"),
    asset!("/charts.js", SCRIPT, "charts.js"),
    asset!("/client.js", SCRIPT, "client.js"),
    asset!("/controls.js", SCRIPT, "controls.js"),
    asset!("/dom.js", SCRIPT, "dom.js"),
    asset!("/engine.js", SCRIPT, "engine.js"),
    asset!("/explore.js", SCRIPT, "explore.js"),
    asset!("/format.js", SCRIPT, "format.js"),
    asset!("/page.js", SCRIPT, "page.js"),
    asset!("/pruner.js", SCRIPT, "pruner.js"),
    asset!("/views.js", SCRIPT, "views.js"),
    asset!("/vitals.js", SCRIPT, "vitals.js"),
    asset!("/icon.svg", PICTURE, "icon.svg"),
    asset!("/icon-warning.svg", PICTURE, "icon-warning.svg"),
    asset!("/icon-critical.svg", PICTURE, "icon-critical.svg"),
    asset!("/uplot.js", SCRIPT, "uplot/uPlot.iife.min.js"),
    asset!("/uplot.css", STYLE, "uplot/uPlot.min.css"),
    asset!("/api", HTML, "api.html"),
    asset!("/api.js", SCRIPT, "api.js"),
];

/// Where files are served.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    ASSETS.iter().map(|asset| asset.path)
}

/// What stands in the page in the place of how often it asks for news.
const REFRESH: &str = "{{refresh_ms}}";

/// A file. It may be kept, but has to be asked about each time: an update of the program changes it.
pub(crate) async fn file(
    State(service): State<Service>,
    headers: HeaderMap,
    uri: axum::http::Uri,
) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.path == uri.path()) else {
        return Problem::no_such_path(format!("there is nothing at {}", uri.path())).into_response();
    };
    let content = asset.content.replace(REFRESH, &service.refresh.as_millis().to_string());
    let tag = format!("\"{}\"", sapwood_types::AddressHash::of_script(content.as_bytes()));
    let common = [
        (header::CONTENT_TYPE, asset.kind.to_owned()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::ETAG, tag.clone()),
    ];
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known == Some(tag.as_str()) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    (common, content).into_response()
}

/// What the pages may load and from where: nothing but what is served here, and no script or style inside a page.
pub(crate) const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of scripts that a script imports, and of files that a page links.
    fn named(content: &str) -> Vec<&str> {
        let marks = ["from \"", "src=\"", "href=\""];
        let after = marks.iter().flat_map(|mark| content.split(mark).skip(1));
        after.filter_map(|rest| rest.split('"').next()).filter(|name| name.starts_with('/')).collect()
    }

    #[test]
    fn page_files_name_only_files_that_are_served() {
        let elsewhere = ["/metrics", "/health/ready", "/api/v1/openapi.json"];
        let own = ASSETS.iter().filter(|asset| !asset.path.starts_with("/uplot"));
        for asset in own {
            for name in named(asset.content) {
                assert!(paths().chain(elsewhere).any(|path| path == name), "{} names {name}", asset.path);
            }
        }
    }

    #[test]
    fn page_scripts_stay_readable() {
        for asset in ASSETS.iter().filter(|asset| !asset.path.starts_with("/uplot")) {
            let lines = asset.content.lines().count();
            assert!(lines < 400, "{} has {lines} lines: split it", asset.path);
        }
    }
}
