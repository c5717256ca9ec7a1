//! The data directory: what it was made for, and the store in it.
//!
//! ```text
//! DIR/node.json   what chain it holds and how it was made, as the store knows it too
//! DIR/store/      the embedded store
//! DIR/bodies/     bodies of large transactions, unless they are kept elsewhere
//! DIR/admin.token, DIR/endpoints.json   see `private`
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context, bail};
use sapwood_engine_rocksdb::{OpenMode, Options, open_ledger};
use sapwood_ledger::{AddressIndexing, EngineError, Ledger, StoreError};
use sapwood_pruner::{PolicyState, settle_policy};
use sapwood_rules::Policy;
use sapwood_server::address::ChainKind;
use sapwood_sources::bitcoin::Network;
use serde::{Deserialize, Serialize};

use super::private;
use crate::config::Config;

const NODE_FILE: &str = "node.json";
const STORE: &str = "store";

/// What a data directory holds. The store knows it too, so that this file can be made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeFile {
    /// The chain: `bitcoin` or `synthetic`.
    pub(crate) chain: String,
    /// Its network.
    pub(crate) network: String,
    /// Whether outputs can be found by address.
    pub(crate) address_index: bool,
    /// Whether outputs can be found by payment credential.
    #[serde(default)]
    pub(crate) credential_index: bool,
    /// The configuration file it was last run with, for commands that need to know where bodies are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) configuration: Option<PathBuf>,
}

impl NodeFile {
    /// The Bitcoin network, if it is one.
    pub(crate) fn bitcoin(&self) -> Option<Network> {
        if self.chain == "bitcoin" { Network::from_str(&self.network).ok() } else { None }
    }

    /// The notation of its addresses.
    pub(crate) fn kind(&self) -> ChainKind {
        match self.bitcoin() {
            Some(network) => ChainKind::Bitcoin(network.into()),
            None => ChainKind::Other(self.identity()),
        }
    }

    /// The chain and the network, as the store knows them.
    pub(crate) fn identity(&self) -> String {
        format!("{} {}", self.chain, self.network)
    }

    /// What outputs can be found by.
    pub(crate) fn indexing(&self) -> AddressIndexing {
        AddressIndexing { address: self.address_index, credential: self.credential_index }
    }

    fn options(&self, options: Options) -> Options {
        options.ledger(|ledger| {
            ledger.address_index = self.indexing();
            ledger.identity = Some(self.identity());
        })
    }
}

/// A data directory.
#[derive(Clone, Debug)]
pub(crate) struct Directory(PathBuf);

/// A data directory that no node runs on, opened by a command.
pub(crate) struct Offline {
    pub(crate) node: NodeFile,
    pub(crate) store: Ledger,
    /// The policy in force.
    pub(crate) policy: PolicyState,
}

/// What a store has written down about how it is kept.
struct Kept {
    /// The policy. `None` in a new store.
    policy: Option<PolicyState>,
    /// Whether it knows its UTXO set, which a write that does not keep it would remove.
    utxo_hash: bool,
}

impl Kept {
    async fn of(store: &Ledger) -> Result<Self, StoreError> {
        let utxo_hash = store.rolling_utxo_set().await?.is_some();
        Ok(Self { policy: PolicyState::load(store).await?, utxo_hash })
    }
}

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

    /// Whether it says what it holds.
    pub(crate) fn has_node_file(&self) -> bool {
        self.0.join(NODE_FILE).exists()
    }

    /// Makes it, for its owner only. One that is there stays as it is.
    pub(crate) fn make(&self) -> anyhow::Result<()> {
        private::make_directory(&self.0).with_context(|| format!("making {}", self.0.display()))
    }

    /// What it holds. `None` if it is new.
    pub(crate) fn read(&self) -> anyhow::Result<Option<NodeFile>> {
        let path = self.0.join(NODE_FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.rebuild(),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let node = serde_json::from_slice(&text).with_context(|| {
            format!("{} is damaged: delete it, and it is made again from the store", path.display())
        })?;
        Ok(Some(node))
    }

    /// The configuration to work on it with: the one that is named, else the one it was last run with, else what the environment says.
    pub(crate) fn config(&self, named: Option<&Path>) -> anyhow::Result<Config> {
        if let Some(named) = named {
            return Config::load(Some(named));
        }
        match self.read()?.and_then(|node| node.configuration) {
            None => Config::read(None),
            Some(file) => Config::read(Some(file)).with_context(|| {
                format!(
                    "the configuration {} was last run with: name another one with --config",
                    self.0.display()
                )
            }),
        }
    }

    /// What the store says it holds, where the file is lost. `None` if there is no store either.
    fn rebuild(&self) -> anyhow::Result<Option<NodeFile>> {
        let store = match self.open_with(OpenMode::ReadOnly, Options::default()) {
            Ok(store) => store,
            Err(StoreError::Engine(EngineError::Absent { .. })) => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("making {NODE_FILE} again")),
        };
        let Some((chain, network)) = store.identity().and_then(|identity| identity.split_once(' ')) else {
            bail!("{} has a store but no {NODE_FILE}: restore that file from a backup", self.0.display());
        };
        let (chain, network) = (chain.to_owned(), network.to_owned());
        let AddressIndexing { address: address_index, credential: credential_index } = store.address_index();
        Ok(Some(NodeFile { chain, network, address_index, credential_index, configuration: None }))
    }

    /// What it holds, which has to be something.
    fn expect(&self) -> anyhow::Result<NodeFile> {
        match self.read()? {
            Some(node) => Ok(node),
            None => bail!(
                "{} holds no chain: `sapwood import` or `sapwood run` makes one, or name the right directory with --data",
                self.0.display()
            ),
        }
    }

    /// Refuses what it was not made for.
    pub(crate) fn check(&self, wanted: &NodeFile) -> anyhow::Result<()> {
        let Some(found) = self.read()? else { return Ok(()) };
        if (&found.chain, &found.network) != (&wanted.chain, &wanted.network) {
            bail!(
                "{} holds {}, not {}: name another directory",
                self.0.display(),
                found.identity(),
                wanted.identity()
            );
        }
        let indexes = [
            ("address", found.address_index, wanted.address_index),
            ("credential", found.credential_index, wanted.credential_index),
        ];
        for (name, found, wanted) in indexes {
            if found != wanted {
                let made = if found { "with" } else { "without" };
                bail!(
                    "{} was made {made} the {name} index, and that cannot be changed later: ask for the same, or import into a new \
                     directory",
                    self.0.display()
                );
            }
        }
        Ok(())
    }

    /// Makes it hold this, or checks that it does.
    pub(crate) fn claim(&self, wanted: &NodeFile) -> anyhow::Result<()> {
        private::warn_if_directory_is_open(&self.0);
        self.check(wanted)?;
        let path = self.0.join(NODE_FILE);
        let found = if path.exists() { self.read()? } else { None };
        // A command without a configuration does not forget the one that is written down.
        let configuration = wanted
            .configuration
            .clone()
            .or_else(|| found.as_ref().and_then(|found| found.configuration.clone()));
        let wanted = NodeFile { configuration, ..wanted.clone() };
        if found.as_ref() == Some(&wanted) {
            return Ok(());
        }
        self.make()?;
        // Whole or not at all: a new file takes the place of the old one.
        let text = serde_json::to_string_pretty(&wanted)? + "\n";
        let temporary = self.0.join("node.json.new");
        let write = || {
            fs::write(&temporary, text)?;
            fs::File::open(&temporary)?.sync_all()?;
            fs::rename(&temporary, &path)
        };
        write().with_context(|| format!("writing {}", temporary.display()))
    }

    /// Opens the store as it was made, or makes it. What it promised to keep longer than `configured` it goes on keeping.
    pub(crate) async fn open(
        &self,
        node: &NodeFile,
        options: Options,
        configured: &Policy,
    ) -> anyhow::Result<Ledger> {
        let store = open_ledger(&self.store(), OpenMode::Create, *configured, node.options(options))?;
        settle_policy(&store, configured).await?;
        Ok(store)
    }

    /// Opens the store as it was left, or makes it. The UTXO set stays kept where it is, and `policy` makes the policy to configure of what was
    /// configured last, `None` in a new store. Returns that policy too.
    pub(crate) async fn open_as_left(
        &self,
        node: &NodeFile,
        options: Options,
        policy: impl FnOnce(Option<Policy>) -> anyhow::Result<Policy>,
    ) -> anyhow::Result<(Ledger, Policy)> {
        let store =
            open_ledger(&self.store(), OpenMode::Create, Policy::default(), node.options(options.clone()))?;
        let kept = Kept::of(&store).await?;
        drop(store);
        let configured = policy(kept.policy.map(|policy| policy.configuration()))?;
        let options = options.ledger(|ledger| ledger.utxo_hash |= kept.utxo_hash);
        Ok((self.open(node, options, &configured).await?, configured))
    }

    /// Opens what is there for reading: nothing in the directory changes, and it may be a copy on a read-only medium.
    pub(crate) async fn look(&self) -> anyhow::Result<Offline> {
        self.offline(OpenMode::ReadOnly).await
    }

    /// Opens what is there for a command that changes something.
    pub(crate) async fn change(&self) -> anyhow::Result<Offline> {
        self.offline(OpenMode::Existing).await
    }

    async fn offline(&self, mode: OpenMode) -> anyhow::Result<Offline> {
        let node = self.expect()?;
        let store = match self.open_with(mode, node.options(Options::default())) {
            Err(error @ StoreError::Engine(EngineError::Absent { .. })) => {
                return Err(error).with_context(|| {
                    format!(
                        "{} says {}, but its store is missing",
                        self.0.join(NODE_FILE).display(),
                        node.identity()
                    )
                });
            }
            Err(error @ StoreError::OtherIdentity { .. }) => {
                return Err(error).with_context(|| {
                    let file = self.0.join(NODE_FILE);
                    format!("{} is not that of its store: delete it, and it is made again", file.display())
                });
            }
            opened => opened?,
        };
        let Kept { policy, utxo_hash } = Kept::of(&store).await?;
        let policy = policy.unwrap_or_else(|| PolicyState::configured(Policy::default()));
        // Opened again with the policy it has written down, and keeping what it keeps: a reader cannot be told another one.
        drop(store);
        let options = node.options(Options::default().ledger(|ledger| ledger.utxo_hash = utxo_hash));
        let store = open_ledger(&self.store(), mode, policy.policy(), options)?;
        Ok(Offline { node, store, policy })
    }

    fn open_with(&self, mode: OpenMode, options: Options) -> Result<Ledger, StoreError> {
        open_ledger(&self.store(), mode, Policy::default(), options)
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
            credential_index: false,
            configuration: None,
        }
    }

    fn words(error: anyhow::Error) -> String {
        format!("{error:#}")
    }

    async fn made(path: &Path) -> Directory {
        let directory = Directory::new(path);
        directory.claim(&node()).unwrap();
        directory.open(&node(), Options::default(), &Policy::with_retention(4000)).await.unwrap();
        directory
    }

    #[test]
    fn a_directory_keeps_what_it_was_made_for() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::new(&temporary.path().join("data"));
        assert!(words(directory.expect().unwrap_err()).contains("holds no chain"));
        directory.claim(&node()).unwrap();
        assert_eq!(directory.expect().unwrap(), node());
        let other = NodeFile { network: "mainnet".into(), ..node() };
        assert!(words(directory.claim(&other).unwrap_err()).contains("holds bitcoin regtest"));
        let indexed = NodeFile { address_index: true, ..node() };
        assert!(words(directory.claim(&indexed).unwrap_err()).contains("without the address index"));
        let indexed = NodeFile { credential_index: true, ..node() };
        assert!(words(directory.claim(&indexed).unwrap_err()).contains("without the credential index"));
        let run = NodeFile { configuration: Some("sapwood.toml".into()), ..node() };
        directory.claim(&run).unwrap();
        directory.claim(&node()).unwrap();
        assert_eq!(directory.expect().unwrap(), run, "the configuration is not forgotten");
        for damaged in [&b"{"[..], b"\xff\xfe", b""] {
            std::fs::write(directory.path().join(NODE_FILE), damaged).unwrap();
            let said = words(directory.expect().unwrap_err());
            assert!(said.contains("is damaged: delete it"), "{said}");
        }
    }

    #[tokio::test]
    async fn a_directory_made_with_the_credential_index_has_it_and_keeps_it() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = Directory::new(&temporary.path().join("data"));
        let indexed = NodeFile { credential_index: true, ..node() };
        directory.claim(&indexed).unwrap();
        let policy = Policy::with_retention(4000);
        let store = directory.open(&indexed, Options::default(), &policy).await.unwrap();
        assert_eq!(store.address_index(), AddressIndexing { address: false, credential: true });
        let credential = sapwood_types::AddressHash([7; 28]);
        let query = |kind| sapwood_ledger::AddressQuery {
            kind,
            hash: credential,
            order: sapwood_ledger::Order::Ascending,
            after: None,
            limit: 1,
        };
        use sapwood_ledger::AddressKind;
        assert!(store.by_address(query(AddressKind::Credential)).await.is_ok());
        assert!(store.by_address(query(AddressKind::Address)).await.is_err(), "that index is not kept");
        drop(store);
        assert!(words(directory.claim(&node()).unwrap_err()).contains("with the credential index"));
        std::fs::remove_file(directory.path().join(NODE_FILE)).unwrap();
        assert_eq!(directory.expect().unwrap(), indexed, "the store knows it too");
    }

    #[tokio::test]
    async fn m14_a_lost_node_file_is_made_again_from_the_store() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = made(&temporary.path().join("data")).await;
        std::fs::remove_file(directory.path().join(NODE_FILE)).unwrap();
        assert_eq!(directory.expect().unwrap(), node());
        let other = NodeFile { network: "mainnet".into(), ..node() };
        assert!(directory.claim(&other).is_err(), "it is still regtest");
        directory.claim(&node()).unwrap();
        assert!(directory.path().join(NODE_FILE).exists());
    }

    #[tokio::test]
    async fn m14_a_node_file_of_another_network_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = made(&temporary.path().join("data")).await;
        let other = NodeFile { network: "mainnet".into(), ..node() };
        let text = serde_json::to_string(&other).unwrap();
        std::fs::write(directory.path().join(NODE_FILE), text).unwrap();
        let error = words(directory.look().await.err().unwrap());
        assert!(error.contains("regtest") && error.contains("is made again"), "{error}");
        assert!(directory.open(&other, Options::default(), &Policy::default()).await.is_err());
    }

    #[tokio::test]
    async fn m14_a_missing_store_is_said_and_none_is_made() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = made(&temporary.path().join("data")).await;
        std::fs::remove_dir_all(directory.store()).unwrap();
        for open in [directory.look().await, directory.change().await] {
            let error = words(open.err().unwrap());
            assert!(error.contains("its store is missing"), "{error}");
        }
        assert!(!directory.store().exists());
    }

    #[tokio::test]
    async fn store_with_a_damaged_or_missing_file_says_what_to_do() {
        let spoil: [fn(&Path); 3] = [
            |file| std::fs::write(file.join("CURRENT"), "nonsense").unwrap(),
            |store| {
                let manifest = files(store).find(|name| name.contains("MANIFEST")).unwrap();
                std::fs::write(manifest, [0xee; 4096]).unwrap();
            },
            |store| std::fs::remove_file(files(store).find(|name| name.ends_with(".sst")).unwrap()).unwrap(),
        ];
        for spoil in spoil {
            let temporary = tempfile::tempdir().unwrap();
            let directory = made(&temporary.path().join("data")).await;
            // Opened once more, so that there are files besides the log.
            drop(directory.change().await.unwrap());
            spoil(&directory.store());
            let said = words(directory.look().await.err().unwrap());
            assert!(said.contains("is damaged") && said.contains("restore a backup"), "{said}");
        }
    }

    fn files(directory: &Path) -> impl Iterator<Item = String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn h5_a_directory_keeps_what_it_promised() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = made(&temporary.path().join("data")).await;
        directory.open(&node(), Options::default(), &Policy::default()).await.unwrap();
        let offline = directory.look().await.unwrap();
        assert_eq!(offline.policy.policy(), Policy::with_retention(4000));
        assert_eq!(offline.policy.configuration(), Policy::default());
    }
}
