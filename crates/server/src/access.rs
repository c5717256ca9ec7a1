//! Who may do what.
//!
//! Two tokens: one to read, one to change things (which may read too). A client sends one as `authorization: Bearer TOKEN`.
//!
//! | listening on | tokens set | reading | changing things, gRPC | changing things, HTTP |
//! |---|---|---|---|---|
//! | loopback | none | open | open | refused |
//! | loopback | only admin | open | admin token | admin token |
//! | loopback | only read | read token | refused | refused |
//! | anywhere | both | either token | admin token | admin token |
//! | elsewhere | only admin | admin token | admin token | admin token |
//! | elsewhere | only read | read token | refused | refused |
//! | elsewhere | none | the server does not start | | |
//!
//! HTTP is stricter than gRPC because a browser on the same machine can be made to send requests to loopback by any page it shows;
//! it cannot be made to speak gRPC over plain HTTP/2.

use std::{fmt, net::SocketAddr};

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use crate::{Refusal, seldom::Seldom};

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

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Anybody may ask: whether the server lives.
    Nothing,
    /// It reads.
    Read,
    /// It changes something.
    Admin,
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
    tokens: Tokens,
    reading_is_open: bool,
    changing_is_open: bool,
    refused: Seldom,
}

impl Access {
    /// The rules of a gRPC server that listens on `address`.
    pub fn grpc(tokens: Tokens, address: SocketAddr) -> Result<Self, AccessError> {
        let access = Self::http(tokens, address)?;
        let no_tokens = access.tokens.read.is_none() && access.tokens.admin.is_none();
        Ok(Self { changing_is_open: no_tokens, ..access })
    }

    /// The rules of an HTTP server that listens on `address`.
    pub fn http(tokens: Tokens, address: SocketAddr) -> Result<Self, AccessError> {
        let loopback = address.ip().to_canonical().is_loopback();
        if !loopback && tokens.read.is_none() && tokens.admin.is_none() {
            return Err(AccessError::NeedsToken { address });
        }
        let reading_is_open = loopback && tokens.read.is_none();
        Ok(Self { tokens, reading_is_open, changing_is_open: false, refused: Seldom::default() })
    }

    /// Whether a request with these headers may do what it needs to.
    pub fn check(&self, headers: &HeaderMap, need: Need) -> Result<(), Refusal> {
        let checked = self.decide(headers, need);
        if let Err(refusal) = &checked
            && let Some(times) = self.refused.say()
        {
            // Never the token itself: a wrong one may be a right one with a slip.
            tracing::warn!(%refusal, times, "a request was refused");
        }
        checked
    }

    /// Whether there is an admin token: without one no request may change anything over HTTP.
    pub fn has_admin_token(&self) -> bool {
        self.tokens.admin.is_some()
    }

    fn decide(&self, headers: &HeaderMap, need: Need) -> Result<(), Refusal> {
        let open = match need {
            Need::Nothing => true,
            Need::Read => self.reading_is_open,
            Need::Admin => self.changing_is_open,
        };
        if open {
            return Ok(());
        }
        if need == Need::Admin && self.tokens.admin.is_none() {
            return Err(Refusal::AdminUnset);
        }
        let offered = bearer(headers).ok_or(Refusal::NoToken)?;
        let is = |token: &Option<Secret>| token.as_ref().is_some_and(|token| token.is(offered));
        // Both are always compared, so that the time does not tell which one it is like.
        match (is(&self.tokens.admin), is(&self.tokens.read)) {
            (true, _) => Ok(()),
            (false, true) if need == Need::Read => Ok(()),
            (false, true) => Err(Refusal::NotAdmin),
            (false, false) => Err(Refusal::WrongToken),
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

    /// What reading and changing things lead to with no token, the read token and the admin token.
    fn table(access: &Access) -> [[Result<(), Refusal>; 3]; 2] {
        [Need::Read, Need::Admin]
            .map(|need| [None, Some(READ), Some(ADMIN)].map(|token| access.check(&with(token), need)))
    }

    #[test]
    fn the_table_at_the_top_is_what_happens() {
        use Refusal::*;
        let here = HERE.parse().unwrap();
        let everywhere = EVERYWHERE.parse().unwrap();
        type Make = fn(Tokens, SocketAddr) -> Result<Access, AccessError>;
        let (grpc, http): (Make, Make) = (Access::grpc, Access::http);
        let open = [Ok(()), Ok(()), Ok(())];
        let unset = [Err(AdminUnset), Err(AdminUnset), Err(AdminUnset)];
        let admin = [Err(NoToken), Err(WrongToken), Ok(())];
        let (either, not_read) = ([Err(NoToken), Ok(()), Ok(())], [Err(NoToken), Err(NotAdmin), Ok(())]);
        let read = [Err(NoToken), Ok(()), Err(WrongToken)];
        let cases = [
            (grpc, here, (false, false), [open.clone(), open.clone()]),
            (http, here, (false, false), [open.clone(), unset.clone()]),
            (grpc, here, (false, true), [open.clone(), admin.clone()]),
            (http, here, (false, true), [open.clone(), admin.clone()]),
            (grpc, here, (true, false), [read.clone(), unset.clone()]),
            (grpc, here, (true, true), [either.clone(), not_read.clone()]),
            (http, everywhere, (true, true), [either.clone(), not_read.clone()]),
            (grpc, everywhere, (true, true), [either, not_read]),
            (grpc, everywhere, (false, true), [admin.clone(), admin]),
            (grpc, everywhere, (true, false), [read, unset]),
        ];
        for (make, address, set, expected) in cases {
            let access = make(tokens(set.0, set.1), address).unwrap();
            assert_eq!(table(&access), expected, "{address} with {set:?}");
        }
        let refused = Access::grpc(tokens(false, false), everywhere).unwrap_err();
        assert!(refused.to_string().contains("127.0.0.1:1"), "{refused}");
    }

    #[test]
    fn a_mapped_loopback_address_is_loopback() {
        assert!(Access::grpc(Tokens::default(), "[::ffff:127.0.0.1]:1".parse().unwrap()).is_ok());
        assert!(Access::grpc(Tokens::default(), "[::1]:1".parse().unwrap()).is_ok());
        assert!(Access::grpc(Tokens::default(), "[::]:1".parse().unwrap()).is_err());
    }

    #[test]
    fn only_one_whole_token_counts() {
        let access = Access::grpc(tokens(true, true), HERE.parse().unwrap()).unwrap();
        let wrong = ["", "read", "read-token-012345678", "read-token-01234567890", " read-token-0123456789"];
        for token in wrong {
            assert_eq!(access.check(&with(Some(token)), Need::Read), Err(Refusal::WrongToken), "{token:?}");
        }
        let mut twice = with(Some(READ));
        twice.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer read-token-0123456789"));
        assert_eq!(access.check(&twice, Need::Read), Err(Refusal::NoToken));
        let mut basic = HeaderMap::new();
        basic.insert(header::AUTHORIZATION, HeaderValue::from_static("Basic read-token-0123456789"));
        assert_eq!(access.check(&basic, Need::Read), Err(Refusal::NoToken));
    }

    #[test]
    fn a_secret_is_never_printed_and_weak_ones_are_refused() {
        assert!(!format!("{:?}", tokens(true, true)).contains("token-0123"));
        assert_eq!(Secret::new("short").unwrap_err(), SecretError::TooShort { found: 5 });
        assert_eq!(Secret::new("with a space inside it").unwrap_err(), SecretError::NotVisible);
        assert!(Secret::new(" 0123456789abcdef\n").unwrap().is(b"0123456789abcdef"));
    }
}
