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

const ASSETS: [Asset; 10] = [
    asset!("/", HTML, "index.html"),
    asset!("/page.css", STYLE, "page.css"),
    asset!("/page.js", SCRIPT, "page.js"),
    asset!("/charts.js", SCRIPT, "charts.js"),
    asset!("/search.js", SCRIPT, "search.js"),
    asset!("/icon.svg", PICTURE, "icon.svg"),
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
