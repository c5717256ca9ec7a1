//! The data directory: what it was made for, and the store in it.
//!
//! ```text
//! DIR/node.json   what chain it holds and how it was made, for people and for the next start
//! DIR/store/      the embedded store
//! DIR/bodies/     bodies of large transactions, unless they are kept elsewhere
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context, bail};
use sapwood_rules::Policy;
use sapwood_sources::bitcoin::Network;
use sapwood_store::AddressIndexing;
use sapwood_store_embedded::{EmbeddedOptions, EmbeddedStore};
use serde::{Deserialize, Serialize};

const NODE_FILE: &str = "node.json";
const STORE: &str = "store";

/// What a data directory holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeFile {
    /// The chain: `bitcoin` or `synthetic`.
    pub(crate) chain: String,
    /// Its network.
    pub(crate) network: String,
    /// Whether outputs can be found by address.
    pub(crate) address_index: bool,
    /// How long things are kept.
    pub(crate) policy: KeptPolicy,
}

/// How long things are kept, as it is written down. See [`Policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptPolicy {
    pub(crate) retention: u32,
    pub(crate) reorg_window: u32,
    pub(crate) coinbase_maturity: u32,
    pub(crate) reassignment_delay: u32,
    pub(crate) unmined_retention: u32,
    pub(crate) parent_preservation: u32,
}

impl From<Policy> for KeptPolicy {
    fn from(policy: Policy) -> Self {
        let Policy {
            retention,
            reorg_window,
            coinbase_maturity,
            reassignment_delay,
            unmined_retention,
            parent_preservation,
        } = policy;
        Self {
            retention,
            reorg_window,
            coinbase_maturity,
            reassignment_delay,
            unmined_retention,
            parent_preservation,
        }
    }
}

impl From<KeptPolicy> for Policy {
    fn from(kept: KeptPolicy) -> Self {
        Policy {
            retention: kept.retention,
            reorg_window: kept.reorg_window,
            coinbase_maturity: kept.coinbase_maturity,
            reassignment_delay: kept.reassignment_delay,
            unmined_retention: kept.unmined_retention,
            parent_preservation: kept.parent_preservation,
        }
    }
}

impl NodeFile {
    /// The Bitcoin network, if it is one.
    pub(crate) fn bitcoin(&self) -> Option<Network> {
        if self.chain == "bitcoin" { Network::from_str(&self.network).ok() } else { None }
    }
}

/// A data directory.
#[derive(Clone, Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The store's own directory.
    pub(crate) fn store(&self) -> PathBuf {
        self.0.join(STORE)
    }

    /// Where bodies of large transactions are, unless they are kept elsewhere.
    pub(crate) fn bodies(&self) -> PathBuf {
        self.0.join("bodies")
    }

    /// What it holds. Nothing if it is new.
    pub(crate) fn read(&self) -> anyhow::Result<Option<NodeFile>> {
        let path = self.0.join(NODE_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let node = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged: restore it from a backup", path.display()))?;
        Ok(Some(node))
    }

    /// What it holds, which has to be something.
    pub(crate) fn expect(&self) -> anyhow::Result<NodeFile> {
        match self.read()? {
            Some(node) => Ok(node),
            None => bail!(
                "{} holds no chain: `sapwood import` or `sapwood run` makes one, or name the right directory with --data",
                self.0.display()
            ),
        }
    }

    /// Makes it hold this, or checks that it does. A changed policy is written down.
    pub(crate) fn claim(&self, wanted: &NodeFile) -> anyhow::Result<()> {
        if let Some(found) = self.read()? {
            if (&found.chain, &found.network) != (&wanted.chain, &wanted.network) {
                bail!(
                    "{} holds {} {}, not {} {}: name another directory with --data",
                    self.0.display(),
                    found.chain,
                    found.network,
                    wanted.chain,
                    wanted.network
                );
            }
            if found.address_index != wanted.address_index {
                let made = if found.address_index { "with" } else { "without" };
                bail!(
                    "{} was made {made} the address index, and that cannot be changed later: ask for the same, or import \
                     into a new directory",
                    self.0.display()
                );
            }
            if found == *wanted {
                return Ok(());
            }
        } else if self.store().exists() {
            bail!("{} has a store but no {NODE_FILE}: restore that file from a backup", self.0.display());
        }
        fs::create_dir_all(&self.0).with_context(|| format!("making {}", self.0.display()))?;
        // Whole or not at all: a new file takes the place of the old one.
        let text = serde_json::to_string_pretty(wanted)? + "\n";
        let temporary = self.0.join("node.json.new");
        let write = || {
            fs::write(&temporary, text)?;
            fs::File::open(&temporary)?.sync_all()?;
            fs::rename(&temporary, self.0.join(NODE_FILE))
        };
        write().with_context(|| format!("writing {}", temporary.display()))
    }

    /// Opens the store as it was made.
    pub(crate) fn open(&self, node: &NodeFile, options: EmbeddedOptions) -> anyhow::Result<EmbeddedStore> {
        let address_index = AddressIndexing { address: node.address_index, credential: false };
        let options = EmbeddedOptions { address_index, ..options };
        Ok(EmbeddedStore::open(&self.store(), node.policy.into(), options)?)
    }

    /// Opens what is there, for looking at it.
    pub(crate) fn open_existing(&self) -> anyhow::Result<(NodeFile, EmbeddedStore)> {
        let node = self.expect()?;
        let store = self.open(&node, EmbeddedOptions::default())?;
        Ok((node, store))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeFile {
        NodeFile {
            chain: "bitcoin".into(),
            network: "regtest".into(),
            address_index: false,
            policy: Policy::default().into(),
        }
    }

    #[test]
    fn a_directory_keeps_what_it_was_made_for() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::new(&temporary.path().join("data"));
        assert!(directory.expect().unwrap_err().to_string().contains("holds no chain"));
        directory.claim(&node()).unwrap();
        assert_eq!(directory.expect().unwrap(), node());
        let other = NodeFile { network: "mainnet".into(), ..node() };
        assert!(directory.claim(&other).unwrap_err().to_string().contains("holds bitcoin regtest"));
        let indexed = NodeFile { address_index: true, ..node() };
        assert!(directory.claim(&indexed).unwrap_err().to_string().contains("without the address index"));
        let longer = NodeFile { policy: Policy::with_retention(1000).into(), ..node() };
        directory.claim(&longer).unwrap();
        assert_eq!(Policy::from(directory.expect().unwrap().policy), Policy::with_retention(1000));
        std::fs::write(directory.path().join(NODE_FILE), "{").unwrap();
        assert!(directory.expect().unwrap_err().to_string().contains("is damaged"));
        std::fs::remove_file(directory.path().join(NODE_FILE)).unwrap();
        std::fs::create_dir(directory.store()).unwrap();
        assert!(directory.claim(&node()).is_err(), "a store of unknown origin is left alone");
    }
}
