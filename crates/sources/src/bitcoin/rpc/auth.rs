//! How to be let in.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};

use super::RpcError;
use crate::bitcoin::Network;

/// What was shown to a node that refuses its cookie.
pub(crate) const COOKIE: &str = "cookie";

/// How to be let in by a node.
#[derive(Clone, PartialEq, Eq)]
pub enum Auth {
    /// With the cookie that the node writes anew at every start.
    Cookie(PathBuf),
    /// With a user and a password, as set by `-rpcauth` or `-rpcuser` and `-rpcpassword`.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
}

/// Passwords do not belong in logs.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Auth::Cookie(path) => f.debug_tuple("Cookie").field(path).finish(),
            Auth::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
        }
    }
}

impl Auth {
    /// The cookie of a node with this data directory.
    pub fn cookie_in(data_directory: &Path, network: Network) -> Auth {
        let directory = match network.directory() {
            Some(below) => data_directory.join(below),
            None => data_directory.to_owned(),
        };
        Auth::Cookie(directory.join(".cookie"))
    }

    /// The value of the `Authorization` header. A cookie is read again every time it is asked for: a restarted node has
    /// another one.
    pub(super) fn header(&self) -> Result<String, RpcError> {
        let pair = match self {
            Auth::Password { user, password } => format!("{user}:{password}"),
            Auth::Cookie(path) => {
                let text = fs::read_to_string(path)
                    .map_err(|error| RpcError::Cookie { path: path.clone(), cause: error.to_string() })?;
                text.trim_end().to_owned()
            }
        };
        Ok(format!("Basic {}", STANDARD.encode(pair)))
    }

    pub(super) fn refused(&self, url: &str) -> RpcError {
        let (with, hint) = match self {
            Auth::Cookie(path) => {
                (COOKIE, format!("{} is of another node, or of an earlier start of this one", path.display()))
            }
            Auth::Password { user, .. } => (
                "password",
                format!(
                    "check user {user:?} against -rpcauth or -rpcuser of the node, or use its cookie file, which is \
                     .cookie in the node's data directory"
                ),
            ),
        };
        RpcError::Unauthorized { url: url.to_owned(), with, hint }
    }
}
