//! External bodies: large transactions keep theirs in an object store.
//!
//! A body is written before its record and deleted before it, so that a record never points at nothing while somebody needs it.
//! Only the pruner deletes bodies. One that is already gone is fine; any other failure keeps the record.
//!
//! The chain puts bodies here before it writes records ([`BodyKeeper`](sapwood_chain::BodyKeeper)). A body whose record never came, or
//! was forgotten, is left over: the pruner finds and deletes it.

mod claims;
mod config;
mod keeper;
mod listing;
mod verify;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path};
use sapwood_chain::Stop;
use sapwood_types::{External, Tx, TxId};
use tokio::sync::OnceCell;

pub(crate) use claims::Claim;
use claims::Claims;
pub use config::{BodyLocation, S3Config, S3Credentials};
pub use keeper::OWNER_NOTE;
pub use listing::Listing;
use listing::NamedLinks;
pub(crate) use verify::is_orphan;
pub use verify::{BodiesReport, VerifyBodiesError};

/// Above this many bytes on the wire a transaction keeps its body outside.
pub const DEFAULT_EXTERNAL_ABOVE: u32 = 32 << 10;
/// How long one call may take, repeats included. Longer than the repeats of the S3 client take by default.
const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(150);

/// Why something could not be done with a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The object store cannot be used as it is configured.
    #[error("{problem}")]
    Configuration {
        /// What is wrong.
        problem: String,
    },
    /// The object store does not allow it.
    #[error(
        "the object store does not allow {doing} {key}: {cause}. Check the credentials and what they allow"
    )]
    Denied {
        /// What was being done.
        doing: &'static str,
        /// To which object.
        key: String,
        /// What it said.
        cause: String,
    },
    /// The object store did not answer in time.
    #[error("the object store did not answer within {} s while {doing} {key}", .after.as_secs_f64())]
    TimedOut {
        /// What was being done.
        doing: &'static str,
        /// To which object.
        key: String,
        /// How long was waited.
        after: Duration,
    },
    /// It would be reached through a symbolic link, which may lead anywhere.
    #[error("{} is a symbolic link, which is not followed: put what it leads to in its place", path.display())]
    Linked {
        /// The link.
        path: PathBuf,
    },
    /// There is no such body.
    #[error("there is no object {key}")]
    NotFound {
        /// Which.
        key: String,
    },
    /// The program is stopping, and does not wait for an answer.
    #[error("the program is stopping, and the object store has not answered while {doing} {key}")]
    Stopping {
        /// What was being done.
        doing: &'static str,
        /// To which object.
        key: String,
    },
    /// Anything else.
    #[error("the object store failed while {doing} {key}: {cause}")]
    Failed {
        /// What was being done.
        doing: &'static str,
        /// To which object.
        key: String,
        /// What it said.
        cause: String,
    },
}

/// What came of deleting a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is deleted. An object store that does not tell says so of an absent one too.
    Deleted,
    /// It was gone already.
    AlreadyGone,
}

/// The bodies of large transactions. Cheap to clone.
#[derive(Clone)]
pub struct Bodies {
    objects: Arc<dyn ObjectStore>,
    /// The directory they are in. `None` if they are elsewhere.
    directory: Option<PathBuf>,
    place: String,
    external_above: u32,
    call_timeout: Duration,
    /// Once it is asked, no answer is waited for.
    stop: Stop,
    claims: Claims,
    /// The name of the store they belong to, if that matters.
    owner: Option<Bytes>,
    /// Set once they are known to be that store's.
    owned: Arc<OnceCell<()>>,
    named_links: Arc<NamedLinks>,
}

impl fmt::Debug for Bodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bodies in {}", self.place)
    }
}

impl Bodies {
    /// Bodies at a place. A directory is made if it does not exist; a bucket is not asked for anything yet.
    pub fn open(location: &BodyLocation) -> Result<Self, BodyError> {
        match location {
            BodyLocation::Directory(directory) => {
                let place = directory.display().to_string();
                let failed = |cause: String| BodyError::Configuration {
                    problem: format!("the directory {place} for bodies cannot be used: {cause}"),
                };
                std::fs::create_dir_all(directory).map_err(|cause| failed(cause.to_string()))?;
                let objects = LocalFileSystem::new_with_prefix(directory)
                    .map_err(|cause| failed(cause.to_string()))?
                    // A body must be there before its record is, after a power failure too.
                    .with_fsync(true);
                let directory = Some(directory.clone());
                Ok(Self { directory, ..Self::over(Arc::new(objects), place) })
            }
            BodyLocation::S3(s3) => {
                let place = format!("bucket {}", s3.bucket);
                let attempts = s3.retries as u32 + 1;
                let all_attempts =
                    s3.request_timeout.saturating_mul(attempts).saturating_add(Duration::from_secs(10));
                Ok(Self::over(Arc::new(config::s3(s3)?), place).with_call_timeout(all_attempts))
            }
        }
    }

    /// Bodies in any object store. `place` is for messages.
    pub fn over(objects: Arc<dyn ObjectStore>, place: impl Into<String>) -> Self {
        let (external_above, call_timeout) = (DEFAULT_EXTERNAL_ABOVE, DEFAULT_CALL_TIMEOUT);
        let (claims, owner, owned) = (Claims::default(), None, Arc::default());
        let (directory, place, stop) = (None, place.into(), Stop::default());
        let named_links = Arc::default();
        Self {
            objects,
            directory,
            place,
            external_above,
            call_timeout,
            stop,
            claims,
            owner,
            owned,
            named_links,
        }
    }

    /// Keep bodies of more than so many bytes outside.
    #[must_use]
    pub fn with_external_above(self, bytes: u32) -> Self {
        Self { external_above: bytes, ..self }
    }

    /// Give up a call after so long, repeats included.
    #[must_use]
    pub fn with_call_timeout(self, call_timeout: Duration) -> Self {
        Self { call_timeout, ..self }
    }

    /// Give up calls once this is asked: those in flight and all further ones.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// Where the body of a transaction belongs, if not into its record: outside if it is large, or needs more than one page.
    pub fn belongs_outside(&self, tx: &Tx) -> Option<External> {
        tx.body_outside(self.external_above)
    }

    /// Puts the body of a transaction outside if it belongs there. Call this before its record is made, and put what it returns
    /// into the [`CreateRequest`](sapwood_ledger::CreateRequest). Beside a running pruner use
    /// [`Chain::create`](sapwood_chain::Chain::create), which claims the body until the record is there.
    pub async fn keep(&self, tx: &Tx, body: Bytes) -> Result<Option<External>, BodyError> {
        let Some(external) = self.belongs_outside(tx) else { return Ok(None) };
        self.put(tx.txid, external, body).await?;
        Ok(Some(external))
    }

    /// Writes a body.
    pub async fn put(&self, txid: TxId, external: External, body: Bytes) -> Result<(), BodyError> {
        self.check_owner(true).await?;
        let key = key(&txid, external);
        self.refuse_links(&key).await?;
        self.call("writing", &key, self.objects.put(&key, body.into())).await?;
        Ok(())
    }

    /// Reads a body.
    pub async fn get(&self, txid: TxId, external: External) -> Result<Bytes, BodyError> {
        let key = key(&txid, external);
        self.refuse_links(&key).await?;
        let read = async { self.objects.get(&key).await?.bytes().await };
        self.call("reading", &key, read).await
    }

    /// Whether a body is there.
    pub async fn exists(&self, txid: TxId, external: External) -> Result<bool, BodyError> {
        let key = key(&txid, external);
        self.refuse_links(&key).await?;
        match self.call("looking for", &key, self.objects.head(&key)).await {
            Ok(_) => Ok(true),
            Err(BodyError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes a body. One that is gone already is fine.
    pub(crate) async fn delete(&self, txid: TxId, external: External) -> Result<Deleted, BodyError> {
        self.check_owner(false).await?;
        let key = key(&txid, external);
        self.refuse_links(&key).await?;
        match self.call("deleting", &key, self.objects.delete(&key)).await {
            Ok(()) => Ok(Deleted::Deleted),
            Err(BodyError::NotFound { .. }) => Ok(Deleted::AlreadyGone),
            Err(error) => Err(error),
        }
    }

    /// Refuses a body below the directory that would be reached through a symbolic link. The directory itself may be one.
    async fn refuse_links(&self, key: &Path) -> Result<(), BodyError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let mut path = directory.clone();
        let look = async {
            for part in key.parts() {
                path.push(part.as_ref());
                // What is not there, or cannot be looked at, is an error of what is done with it.
                if tokio::fs::symlink_metadata(&path).await.is_ok_and(|about| about.is_symlink()) {
                    return Ok(Some(path));
                }
            }
            Ok(None)
        };
        match self.call("looking for", key, look).await? {
            Some(path) => Err(BodyError::Linked { path }),
            None => Ok(()),
        }
    }

    /// Keeps everybody else away from the bodies of these transactions until what is returned is dropped.
    pub(crate) async fn claim_all(&self, txids: Vec<TxId>) -> Claim {
        self.claims.claim(txids).await
    }

    /// All bodies, or those of transactions whose id begins with this byte.
    pub async fn list(&self, first_byte: Option<u8>) -> Result<Listing, BodyError> {
        self.check_owner(false).await?;
        let prefix = first_byte.map(|byte| Path::from(format!("{byte:02x}")));
        Ok(Listing::new(self, prefix))
    }

    async fn call<T>(
        &self,
        doing: &'static str,
        key: &Path,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, BodyError> {
        use object_store::Error;
        let key = key.to_string();
        let result = match self.stop.or(tokio::time::timeout(self.call_timeout, work)).await {
            Some(Ok(result)) => result,
            Some(Err(_)) => return Err(BodyError::TimedOut { doing, key, after: self.call_timeout }),
            None => return Err(BodyError::Stopping { doing, key }),
        };
        result.map_err(|error| match error {
            Error::NotFound { .. } => BodyError::NotFound { key },
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                BodyError::Denied { doing, key, cause: error.to_string() }
            }
            _ => BodyError::Failed { doing, key, cause: error.to_string() },
        })
    }
}

/// The name of the object with a body: in directories by the first two bytes of the id, since one directory with millions of files
/// is slow everywhere.
pub fn key(txid: &TxId, external: External) -> Path {
    let id = txid.to_string();
    let extension = match external {
        External::Tx => "tx",
        External::Outputs => "outputs",
    };
    Path::from(format!("{}/{}/{id}.{extension}", &id[..2], &id[2..4]))
}

/// What an object is, by its name. Nothing if it is no body.
fn parse_key(path: &Path) -> Option<(TxId, External)> {
    let (id, extension) = path.filename()?.split_once('.')?;
    let external = match extension {
        "tx" => External::Tx,
        "outputs" => External::Outputs,
        _ => return None,
    };
    let txid: TxId = id.parse().ok()?;
    (key(&txid, external) == *path).then_some((txid, external))
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use sapwood_types::{Input, OutPoint, Output};

    use super::*;

    fn tx(size: u32, inputs: usize, outputs: usize) -> Tx {
        Tx {
            txid: TxId([0xab; 32]),
            version: 1,
            locktime: 0,
            fee: None,
            size,
            coinbase: false,
            inputs: vec![Input::of(OutPoint::new(TxId([1; 32]), 0)); inputs],
            outputs: vec![Output::new(1, &b"x"[..]); outputs],
            raw: Default::default(),
        }
    }

    #[tokio::test]
    async fn large_bodies_and_those_of_many_pages_go_outside() {
        let bodies = Bodies::over(Arc::new(InMemory::new()), "memory");
        assert_eq!(bodies.belongs_outside(&tx(32 << 10, 1, 128)), None);
        assert_eq!(bodies.belongs_outside(&tx((32 << 10) + 1, 1, 1)), Some(External::Tx));
        assert_eq!(bodies.belongs_outside(&tx(100, 1, 129)), Some(External::Tx));
        assert_eq!(bodies.belongs_outside(&tx(100, 0, 129)), Some(External::Outputs));
        let large = tx(40_000, 0, 1);
        assert_eq!(bodies.keep(&large, Bytes::from_static(b"body")).await, Ok(Some(External::Outputs)));
        assert_eq!(bodies.get(large.txid, External::Outputs).await, Ok(Bytes::from_static(b"body")));
        assert_eq!(bodies.exists(large.txid, External::Tx).await, Ok(false));
        assert_eq!(bodies.keep(&tx(10, 0, 1), Bytes::new()).await, Ok(None));
    }

    #[test]
    fn keys_are_sharded_by_the_first_two_bytes() {
        let id = "abcd".to_owned() + &"00".repeat(30);
        assert_eq!(key(&id.parse().unwrap(), External::Tx).to_string(), format!("ab/cd/{id}.tx"));
        assert_eq!(key(&id.parse().unwrap(), External::Outputs).to_string(), format!("ab/cd/{id}.outputs"));
        for external in [External::Tx, External::Outputs] {
            let txid = id.parse().unwrap();
            assert_eq!(parse_key(&key(&txid, external)), Some((txid, external)));
        }
        for other in
            ["owner", &format!("ab/cd/{id}"), &format!("cd/ab/{id}.tx"), &format!("ab/cd/{id}.tx.old")]
        {
            assert_eq!(parse_key(&Path::from(other)), None, "{other}");
        }
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_used_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let location = BodyLocation::Directory(file.path().join("below a file"));
        let error = Bodies::open(&location).unwrap_err();
        assert!(error.to_string().contains("below a file"), "{error}");
    }

    #[test]
    fn a_secret_is_never_shown() {
        let credentials = S3Credentials { access_key_id: "key".into(), secret_access_key: "hush".into() };
        let config = S3Config { credentials: Some(credentials), ..S3Config::bucket("bodies") };
        assert!(!format!("{config:?}").contains("hush"));
    }
}
