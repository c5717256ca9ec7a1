//! Who may call what: tokens, and what a node that follows a source refuses. Everything goes by the path of the method, so that a new
//! method that was not thought of is closed, not open.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Request, header},
    middleware::Next,
    response::Response,
};
use tonic::Status;

use super::{
    Feed, audit,
    convert::precondition,
    proto::{self, Problem, ProblemCode},
};
use crate::{
    Access, Need,
    audit::{Copied, watch},
};

/// What decides.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) access: Arc<Access>,
    pub(super) feed: Feed,
}

/// What an operator may do to outputs of a chain that others decide about, if that is allowed at all. No block contradicts these, but a block
/// that spends a frozen or locked output is refused, and the node stands still.
const UTXO_ADMIN: [&str; 6] =
    ["Freeze", "Unfreeze", "Reassign", "SetLocked", "Preserve", "ExpirePreservations"];
/// What feeds a chain.
const FEEDING: [&str; 3] = ["ApplyBlocks", "RollBack", "SetState"];

/// What a method needs, by its path.
fn need(path: &str) -> Need {
    if path.starts_with("/grpc.health.v1.Health/") {
        Need::Nothing
    } else if path.starts_with("/grpc.reflection.") || proto::READS.contains(&path) {
        Need::Read
    } else {
        Need::Admin
    }
}

/// Why a node with this feed does not take a change. `None` if it does.
fn contradicts(feed: &Feed, path: &str) -> Option<Status> {
    let Feed::Closed { source, utxo_admin } = feed else { return None };
    let refuse = |code: ProblemCode, message: String| {
        Some(precondition(&Problem { code: code.into(), message, ..Problem::default() }))
    };
    if let Some(method) = path.strip_prefix("/sapwood.v1.Chain/") {
        let text = || format!("this node follows {source}, so it takes no blocks from outside");
        return if FEEDING.contains(&method) { refuse(ProblemCode::NotFed, text()) } else { None };
    }
    let method = path.strip_prefix("/sapwood.v1.Utxo/")?;
    if !UTXO_ADMIN.contains(&method) {
        return refuse(
            ProblemCode::NotFed,
            format!(
                "this node follows {source}, which alone decides about its UTXOs: {method} is for a node that is fed \
                 (source.kind = \"feed\")"
            ),
        );
    }
    if *utxo_admin {
        return None;
    }
    refuse(
        ProblemCode::UtxoAdminDisabled,
        format!(
            "{method} is disabled on a node that follows a source, because a block that spends a frozen or locked output would \
             stop it: set servers.allow_utxo_admin = true and restart to allow it"
        ),
    )
}

/// Lets a call in, or answers why not. What changes something is logged.
pub(super) async fn enter(State(door): State<Door>, mut request: Request<Body>, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let need = need(&path);
    let caller = match door.access.check(request.headers(), request.extensions(), need) {
        Ok(caller) => caller,
        Err(refusal) => return refusal.answer(request.headers()),
    };
    if need != Need::Admin {
        return next.run(request).await;
    }
    request.extensions_mut().insert(caller);
    let (request, copied) = Copied::of(request);
    let work = async {
        match contradicts(&door.feed, &path) {
            Some(status) => status.into_http(),
            None => next.run(request).await,
        }
    };
    let operation = path.trim_start_matches('/').to_owned();
    let arguments = |body: &[u8]| audit::arguments(&path, body);
    let mut response = watch("grpc", operation, Some(caller), copied, arguments, work).await;
    // A router answers an unknown path without it, and a client would not know what to make of that.
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().entry(header::CONTENT_TYPE).or_insert(grpc);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_needs_the_admin_token_and_so_does_what_is_not_known() {
        let need_of = |method: &str| need(&format!("/sapwood.v1.{method}"));
        let reads = ["Utxo/Get", "Chain/GetStatus", "Chain/Subscribe", "Pruner/GetStatus", "Pruner/Explain"];
        for method in reads {
            assert_eq!(need_of(method), Need::Read, "{method}");
        }
        let changes =
            ["Utxo/Create", "Chain/ApplyBlocks", "Pruner/Prune", "Pruner/SetHold", "Utxo/New", "Utxo/get"];
        for method in changes {
            assert_eq!(need_of(method), Need::Admin, "{method}");
        }
        assert_eq!(need("/grpc.health.v1.Health/Check"), Need::Nothing);
        assert_eq!(need("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"), Need::Read);
    }

    /// Every method there is, so that a new one is decided about here and not forgotten.
    #[test]
    fn c3_a_follower_takes_nothing_that_its_source_could_contradict() {
        let pool = prost_reflect::DescriptorPool::decode(proto::DESCRIPTORS).unwrap();
        let all: Vec<String> = pool
            .services()
            .flat_map(|service| service.methods().collect::<Vec<_>>())
            .map(|method| format!("/{}/{}", method.parent_service().full_name(), method.name()))
            .collect();
        let changes = all.iter().filter(|path| need(path) == Need::Admin);
        let refused = |utxo_admin| {
            let feed = Feed::Closed { source: "files".into(), utxo_admin };
            let refused = changes.clone().filter(|path| contradicts(&feed, path).is_some());
            refused.map(|path| path.rsplit_once("v1.").unwrap().1).collect::<Vec<_>>()
        };
        let contradicting = [
            "Chain/ApplyBlocks",
            "Chain/RollBack",
            "Chain/SetState",
            "Utxo/Create",
            "Utxo/Spend",
            "Utxo/Unspend",
            "Utxo/SetMined",
            "Utxo/MarkOnLongestChain",
            "Utxo/SetConflicting",
            "Utxo/ResolveConflicts",
            "Utxo/Delete",
        ];
        let sorted = |mut names: Vec<&str>| {
            names.sort_unstable();
            names.join(" ")
        };
        assert_eq!(sorted(refused(true)), sorted(contradicting.to_vec()));
        let admin = UTXO_ADMIN.map(|method| format!("Utxo/{method}"));
        let both = contradicting.into_iter().chain(admin.iter().map(String::as_str));
        assert_eq!(sorted(refused(false)), sorted(both.collect()));
        assert!(all.iter().all(|path| contradicts(&Feed::Open, path).is_none()));
    }
}
