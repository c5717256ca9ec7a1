//! Which bodies there are, a chunk at a time.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use futures_util::{TryStreamExt, stream::BoxStream};
use object_store::{ObjectMeta, path::Path};
use parking_lot::Mutex;
use sapwood_types::{External, TxId};

use super::{Bodies, BodyError, parse_key};

/// A listing of bodies, a chunk at a time.
pub struct Listing {
    bodies: Bodies,
    prefix: Path,
    /// Where the bodies come from. `None` at the end.
    from: Option<From>,
}

enum From {
    Objects(BoxStream<'static, object_store::Result<ObjectMeta>>),
    Directory(Walk),
}

impl Listing {
    pub(super) fn new(bodies: &Bodies, prefix: Option<Path>) -> Self {
        let from = match &bodies.directory {
            None => From::Objects(bodies.objects.list(prefix.as_ref())),
            Some(directory) => {
                From::Directory(Walk::new(directory, prefix.as_ref(), Arc::clone(&bodies.named_links)))
            }
        };
        Self { bodies: bodies.clone(), prefix: prefix.unwrap_or_default(), from: Some(from) }
    }

    /// The next bodies, about as many as wanted. `None` at the end. Objects that are no bodies are passed over, and so is whatever is
    /// reached through a symbolic link below a directory of bodies.
    ///
    /// # Errors
    /// Whatever the object store says. The listing is over then.
    pub async fn next(&mut self, about: usize) -> Result<Option<Vec<(TxId, External)>>, BodyError> {
        let Some(from) = self.from.take() else { return Ok(None) };
        let read = async {
            match from {
                From::Objects(objects) => next_objects(objects, about).await,
                From::Directory(walk) => {
                    let walked = tokio::task::spawn_blocking(move || walk.next(about)).await;
                    let failed = |source| object_store::Error::Generic { store: "directory", source };
                    walked.map_err(|error| failed(error.into()))?.map_err(|error| failed(error.into()))
                }
            }
        };
        let (found, rest) = self.bodies.call("listing", &self.prefix, read).await?;
        self.from = rest;
        Ok(Some(found))
    }
}

type Found = (Vec<(TxId, External)>, Option<From>);

async fn next_objects(
    mut objects: BoxStream<'static, object_store::Result<ObjectMeta>>,
    about: usize,
) -> object_store::Result<Found> {
    let mut found = Vec::new();
    while found.len() < about {
        match objects.try_next().await? {
            Some(object) => found.extend(parse_key(&object.location)),
            None => return Ok((found, None)),
        }
    }
    Ok((found, Some(From::Objects(objects))))
}

/// A walk through a directory of bodies. The object store's own follows symbolic links, out of the directory and in circles: what the
/// pruner deletes must lie below the directory it was given. That one itself may be a link.
struct Walk {
    root: PathBuf,
    /// Directories still to be read.
    left: Vec<PathBuf>,
    /// Links that the log has named.
    named_links: Arc<NamedLinks>,
}

/// Links that the log has named, up to a number: every sweep finds them again.
#[derive(Default)]
pub(super) struct NamedLinks(Mutex<HashSet<PathBuf>>);

impl NamedLinks {
    const MOST: usize = 1000;

    /// Whether a link was not named before.
    fn is_new(&self, link: &FilePath) -> bool {
        let mut named = self.0.lock();
        named.len() < Self::MOST && named.insert(link.to_owned())
    }
}

impl Walk {
    fn new(root: &FilePath, prefix: Option<&Path>, named_links: Arc<NamedLinks>) -> Self {
        let start = prefix.map(|prefix| root.join(prefix.as_ref()));
        let is_directory = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|it| it.is_dir());
        let left = match start {
            None => vec![root.to_owned()],
            Some(start) => Some(start).filter(is_directory).into_iter().collect(),
        };
        Self { root: root.to_owned(), left, named_links }
    }

    fn next(mut self, about: usize) -> io::Result<Found> {
        let mut found = Vec::new();
        while found.len() < about {
            let Some(directory) = self.left.pop() else { return Ok((found, None)) };
            let entries = match fs::read_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                // Of a link this is that it is one, not what it leads to.
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    self.left.push(entry.path());
                } else if kind.is_file() {
                    found.extend(self.body(&entry.path()));
                } else if kind.is_symlink() && self.named_links.is_new(&entry.path()) {
                    tracing::warn!(link = %entry.path().display(), "a symbolic link among bodies is not followed");
                }
            }
        }
        Ok((found, Some(From::Directory(self))))
    }

    fn body(&self, file: &FilePath) -> Option<(TxId, External)> {
        parse_key(&Path::from(file.strip_prefix(&self.root).ok()?.to_str()?))
    }
}
