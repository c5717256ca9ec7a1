//! Who may do what.
//!
//! Two tokens: one to read, one to change things (which may read too). A client sends one as `authorization: Bearer TOKEN`. REST and gRPC
//! have the same rules:
//!
//! | listening on | tokens set | reading | changing things |
//! |---|---|---|---|
//! | loopback | none | open | refused |
//! | loopback | only admin | open | admin token |
//! | loopback | only read | read token | refused |
//! | anywhere | both | either token | admin token |
//! | elsewhere | only admin | admin token | admin token |
//! | elsewhere | only read | read token | refused |
//! | elsewhere | none | the server does not start | |
//!
//! Loopback opens reading only. Nothing on loopback tells the users of a machine apart, and a browser can be made to send requests there by
//! any page it shows, so a change always needs the admin token.

use std::{fmt, net::SocketAddr, sync::Arc};

use axum::http::{Extensions, HeaderMap, header};
use parking_lot::RwLock;
use subtle::ConstantTimeEq;

use crate::{Refusal, listen::Peer, seldom::SeldomByPeer};

/// The shortest token that is taken.
const SHORTEST: usize = 16;

/// A token. It is never printed.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

/// Why a text cannot be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It is short enough to be guessed.
    #[error(
        "a token has at least {SHORTEST} characters, this one has {found}; `openssl rand -hex 32` makes a good one"
    )]
    TooShort {
        /// How many it has.
        found: usize,
    },
    /// It has characters that a header cannot carry.
    #[error(
        "a token has only visible ASCII characters and no spaces; `openssl rand -hex 32` makes a good one"
    )]
    NotVisible,
}

impl Secret {
    /// A token from text; white space around it does not count, so that it can come from a file.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(SecretError::NotVisible);
        }
        if text.len() < SHORTEST {
            return Err(SecretError::TooShort { found: text.len() });
        }
        Ok(Self(text.as_bytes().into()))
    }

    /// Whether this is the token, in a time that tells nothing about it but its length.
    pub fn is(&self, offered: &[u8]) -> bool {
        self.0.ct_eq(offered).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// The tokens of a server.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    /// Lets its bearer read.
    pub read: Option<Secret>,
    /// Lets its bearer read and change things.
    pub admin: Option<Secret>,
}

/// The tokens in effect, shared by all servers of a process. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub struct SharedTokens(Arc<RwLock<Tokens>>);

impl SharedTokens {
    /// Replaces the tokens. Requests that are checked from now on need the new ones.
    pub fn replace(&self, tokens: Tokens) {
        *self.0.write() = tokens;
    }
}

impl From<Tokens> for SharedTokens {
    fn from(tokens: Tokens) -> Self {
        Self(Arc::new(RwLock::new(tokens)))
    }
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Open to every client: whether the server lives.
    Nothing,
    /// It reads.
    Read,
    /// It changes something.
    Admin,
}

/// What a client has shown that it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It showed no valid token, and needed none.
    Anonymous,
    /// It has the read token.
    Reader,
    /// It has the admin token.
    Admin,
}

impl Role {
    /// A short fixed name for the log.
    pub fn name(self) -> &'static str {
        match self {
            Role::Anonymous => "anonymous",
            Role::Reader => "reader",
            Role::Admin => "admin",
        }
    }
}

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The address of the client. `None` if the request did not come through a [`Listener`](crate::Listener).
    pub peer: Option<SocketAddr>,
    /// What it may do.
    pub role: Role,
}

impl Caller {
    /// Who asked for a change, in words: role, peer and interface.
    pub fn over(&self, interface: &str) -> String {
        match self.peer {
            Some(peer) => format!("{} from {} over {interface}", self.role.name(), peer.ip().to_canonical()),
            None => "a command on the data directory".into(),
        }
    }
}

/// Why a server does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Others could reach it, and nothing would keep them out.
    #[error(
        "{address} can be reached from other machines, and no token is set: set a read token and an admin token, or listen on a \
         loopback address such as 127.0.0.1:{}", .address.port()
    )]
    NeedsToken {
        /// Where it was to listen.
        address: SocketAddr,
    },
}

/// Who may do what on one server.
#[derive(Debug)]
pub struct Access {
    tokens: SharedTokens,
    loopback: bool,
    refused: SeldomByPeer,
}

impl Access {
    /// The rules of a server that listens on `address`. Fails if other machines can reach it and no token is set.
    pub fn new(tokens: impl Into<SharedTokens>, address: SocketAddr) -> Result<Self, AccessError> {
        let tokens = tokens.into();
        let loopback = address.ip().to_canonical().is_loopback();
        let unset = {
            let tokens = tokens.0.read();
            tokens.read.is_none() && tokens.admin.is_none()
        };
        if !loopback && unset {
            return Err(AccessError::NeedsToken { address });
        }
        Ok(Self { tokens, loopback, refused: SeldomByPeer::default() })
    }

    /// Checks whether a request with these headers may do what it needs to. A refusal is logged with the peer, seldom enough that a flood
    /// of them does not fill the log.
    pub fn check(&self, headers: &HeaderMap, extensions: &Extensions, need: Need) -> Result<Caller, Refusal> {
        let peer = extensions.get::<Peer>().map(|peer| peer.0);
        let checked = self.decide(headers, need);
        if let Err(refusal) = &checked
            && let Some(times) = self.refused.say(peer.map(|peer| peer.ip()))
        {
            // Never the token itself: a wrong one may be a right one with a slip.
            tracing::warn!(peer = %Shown(peer), %refusal, times, "a request was refused");
        }
        checked.map(|role| Caller { peer, role })
    }

    /// Whether there is an admin token: without one no request may change anything.
    pub fn has_admin_token(&self) -> bool {
        self.tokens.0.read().admin.is_some()
    }

    /// Whether a request with these headers has the admin token. Logs nothing.
    pub fn is_admin(&self, headers: &HeaderMap) -> bool {
        self.decide(headers, Need::Admin).is_ok()
    }

    /// What a request may do. A token that is offered is compared even where none is needed, so that only a valid one earns its role.
    fn decide(&self, headers: &HeaderMap, need: Need) -> Result<Role, Refusal> {
        let tokens = self.tokens.0.read();
        let open = need == Need::Nothing || (need == Need::Read && self.loopback && tokens.read.is_none());
        if need == Need::Admin && tokens.admin.is_none() {
            return Err(Refusal::AdminUnset);
        }
        let Some(offered) = bearer(headers) else {
            return if open { Ok(Role::Anonymous) } else { Err(Refusal::NoToken) };
        };
        let is = |token: &Option<Secret>| token.as_ref().is_some_and(|token| token.is(offered));
        // Both are always compared, so that the time does not tell which one it is like.
        match (is(&tokens.admin), is(&tokens.read)) {
            (true, _) => Ok(Role::Admin),
            (false, true) if need != Need::Admin => Ok(Role::Reader),
            (false, true) => Err(Refusal::NotAdmin),
            (false, false) if open => Ok(Role::Anonymous),
            (false, false) => Err(Refusal::WrongToken),
        }
    }
}

/// A peer in the log.
pub(crate) struct Shown(pub(crate) Option<SocketAddr>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(peer) => peer.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

/// The token a request offers. One that offers several offers none.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (all.next()?.as_bytes(), all.next()) else { return None };
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const READ: &str = "read-token-0123456789";
    const ADMIN: &str = "admin-token-0123456789";
    const HERE: &str = "127.0.0.1:1";
    const EVERYWHERE: &str = "0.0.0.0:1";

    fn tokens(read: bool, admin: bool) -> Tokens {
        let secret = |wanted: bool, text| wanted.then(|| Secret::new(text).unwrap());
        Tokens { read: secret(read, READ), admin: secret(admin, ADMIN) }
    }

    fn with(token: Option<&str>) -> HeaderMap {
        let value = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
        value.map(|value| (header::AUTHORIZATION, value)).into_iter().collect()
    }

    fn asked(access: &Access, headers: &HeaderMap, need: Need) -> Result<(), Refusal> {
        access.check(headers, &Extensions::new(), need).map(drop)
    }

    /// What reading and changing things lead to with no token, the read token and the admin token.
    fn table(access: &Access) -> [[Result<(), Refusal>; 3]; 2] {
        [Need::Read, Need::Admin]
            .map(|need| [None, Some(READ), Some(ADMIN)].map(|token| asked(access, &with(token), need)))
    }

    #[test]
    fn c3_the_table_at_the_top_is_what_happens() {
        use Refusal::*;
        let here: SocketAddr = HERE.parse().unwrap();
        let everywhere: SocketAddr = EVERYWHERE.parse().unwrap();
        let open = [Ok(()), Ok(()), Ok(())];
        let unset = [Err(AdminUnset), Err(AdminUnset), Err(AdminUnset)];
        let admin = [Err(NoToken), Err(WrongToken), Ok(())];
        let (either, not_read) = ([Err(NoToken), Ok(()), Ok(())], [Err(NoToken), Err(NotAdmin), Ok(())]);
        let read = [Err(NoToken), Ok(()), Err(WrongToken)];
        let cases = [
            (here, (false, false), [open.clone(), unset.clone()]),
            (here, (false, true), [open.clone(), admin.clone()]),
            (here, (true, false), [read.clone(), unset.clone()]),
            (here, (true, true), [either.clone(), not_read.clone()]),
            (everywhere, (true, true), [either, not_read]),
            (everywhere, (false, true), [admin.clone(), admin]),
            (everywhere, (true, false), [read, unset]),
        ];
        for (address, set, expected) in cases {
            let access = Access::new(tokens(set.0, set.1), address).unwrap();
            assert_eq!(table(&access), expected, "{address} with {set:?}");
        }
        let refused = Access::new(tokens(false, false), everywhere).unwrap_err();
        assert!(refused.to_string().contains("127.0.0.1:1"), "{refused}");
    }

    #[test]
    fn tokens_are_replaced_while_the_server_runs() {
        let shared = SharedTokens::from(tokens(false, true));
        let access = Access::new(shared.clone(), HERE.parse().unwrap()).unwrap();
        assert!(access.is_admin(&with(Some(ADMIN))));
        let new = "another-token-0123456789";
        shared.replace(Tokens { read: None, admin: Some(Secret::new(new).unwrap()) });
        assert!(!access.is_admin(&with(Some(ADMIN))) && access.is_admin(&with(Some(new))));
        // Without any token left, nothing is open that was not.
        shared.replace(Tokens::default());
        assert_eq!(asked(&access, &with(Some(new)), Need::Admin), Err(Refusal::AdminUnset));
    }

    #[test]
    fn a_mapped_loopback_address_is_loopback() {
        assert!(Access::new(Tokens::default(), "[::ffff:127.0.0.1]:1".parse().unwrap()).is_ok());
        assert!(Access::new(Tokens::default(), "[::1]:1".parse().unwrap()).is_ok());
        assert!(Access::new(Tokens::default(), "[::]:1".parse().unwrap()).is_err());
    }

    #[test]
    fn only_one_whole_token_counts() {
        let access = Access::new(tokens(true, true), HERE.parse().unwrap()).unwrap();
        let wrong = ["", "read", "read-token-012345678", "read-token-01234567890", " read-token-0123456789"];
        for token in wrong {
            assert_eq!(asked(&access, &with(Some(token)), Need::Read), Err(Refusal::WrongToken), "{token:?}");
        }
        let mut twice = with(Some(READ));
        twice.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer read-token-0123456789"));
        assert_eq!(asked(&access, &twice, Need::Read), Err(Refusal::NoToken));
        // Not even if one of the two is right: which of them a proxy in between looked at cannot be known.
        let mut two = with(Some(READ));
        two.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer admin-token-0123456789"));
        assert_eq!(asked(&access, &two, Need::Admin), Err(Refusal::NoToken));
        assert!(!access.is_admin(&two));
        let mut basic = HeaderMap::new();
        basic.insert(header::AUTHORIZATION, HeaderValue::from_static("Basic read-token-0123456789"));
        assert_eq!(asked(&access, &basic, Need::Read), Err(Refusal::NoToken));
    }

    #[test]
    fn a_secret_is_never_printed_and_weak_ones_are_refused() {
        assert!(!format!("{:?}", tokens(true, true)).contains("token-0123"));
        assert_eq!(Secret::new("short").unwrap_err(), SecretError::TooShort { found: 5 });
        assert_eq!(Secret::new("with a space inside it").unwrap_err(), SecretError::NotVisible);
        assert!(Secret::new(" 0123456789abcdef\n").unwrap().is(b"0123456789abcdef"));
    }
}
