//! What can go wrong with a node.

use std::{path::PathBuf, time::Duration};

use sapwood_types::{BlockHash, Height};

use crate::bitcoin::Network;

/// A node could not be asked, or gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The address is not one.
    #[error(
        "{url:?} is not the address of a node: {problem}. Write http://HOST:PORT, as in http://127.0.0.1:8332"
    )]
    BadUrl {
        /// The address.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The cookie file could not be read.
    #[error(
        "the node's cookie file {path} cannot be read: {cause}. It is there while the node runs, in the node's data \
         directory (with -rpccookiefile elsewhere); the user who runs this program must be allowed to read it",
        path = path.display()
    )]
    Cookie {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: String,
    },
    /// The node does not let us in.
    #[error("{url} refuses the {with}: {hint}")]
    Unauthorized {
        /// The node.
        url: String,
        /// What was shown to it.
        with: &'static str,
        /// What to do.
        hint: String,
    },
    /// This user may not make this call.
    #[error(
        "{url} does not let this user call {method}: add it to -rpcwhitelist, or allow this address with -rpcallowip"
    )]
    Forbidden {
        /// The node.
        url: String,
        /// The call.
        method: &'static str,
    },
    /// No connection, or it broke.
    #[error(
        "{url} cannot be reached ({cause}, tried {attempts} times): is the node running with -server, and is this its RPC \
         address?"
    )]
    Unreachable {
        /// The node.
        url: String,
        /// What happened last.
        cause: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// No answer in time.
    #[error(
        "{url} did not answer {method} within {after:?}: it may be busy, raise the timeout if that is usual"
    )]
    Timeout {
        /// The node.
        url: String,
        /// The call.
        method: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The node is starting.
    #[error("{url} is still starting{} ({message}): wait until it is up", waited(*after))]
    WarmingUp {
        /// The node.
        url: String,
        /// What the node says it is doing.
        message: String,
        /// How long was waited.
        after: Duration,
    },
    /// The node answered with an error.
    #[error("{url} answered {method} with error {code}: {message}")]
    Node {
        /// The node.
        url: String,
        /// The call.
        method: &'static str,
        /// The code of the error.
        code: i64,
        /// What the node says.
        message: String,
    },
    /// The answer is no answer of a node.
    #[error("{url} gave no usable answer to {method}: {problem}. Is it the RPC address of a Bitcoin node?")]
    Unusable {
        /// The node.
        url: String,
        /// The call.
        method: &'static str,
        /// What is wrong with the answer.
        problem: String,
    },
    /// The node has deleted the block.
    #[error(
        "{url} has pruned block {height} ({hash}); it keeps blocks from {kept_from} on. Use a node with -prune=0, or start \
         from a snapshot at or above that height"
    )]
    Pruned {
        /// The node.
        url: String,
        /// The block.
        hash: BlockHash,
        /// Its height.
        height: Height,
        /// The first height the node still has.
        kept_from: Height,
    },
    /// The node follows another network.
    #[error("{url} is a node of {found}, not of {wanted}: change the network or the address")]
    WrongNetwork {
        /// The node.
        url: String,
        /// The network that was asked for.
        wanted: Network,
        /// What the node calls its network.
        found: String,
    },
}

/// For how long, in whole seconds. Empty for less than one.
fn waited(after: Duration) -> String {
    match after.as_secs() {
        0 => String::new(),
        seconds => format!(" after {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_told_in_whole_seconds() {
        let said = |after| {
            let (url, message) = ("http://127.0.0.1:8332".to_owned(), "Loading block index…".to_owned());
            RpcError::WarmingUp { url, message, after }.to_string()
        };
        assert!(said(Duration::from_micros(549)).contains("is still starting (Loading"));
        assert!(said(Duration::from_millis(9700)).contains("is still starting after 9 s (Loading"));
    }
}
