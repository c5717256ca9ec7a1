//! The configuration: one TOML file, overridden by the environment, with every key documented.

mod document;
#[cfg(test)]
mod old_names;
mod read;
mod sections;
mod validate;

use std::path::{Path, PathBuf};

use anyhow::Context;
use sapwood_pruner::PrunerOptions;
use sapwood_rules::Policy;
use serde::{Deserialize, Serialize};

pub(crate) use document::render;
pub(crate) use sections::*;
pub(crate) use validate::required_maturity;

/// Everything that can be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) data: Data,
    pub(crate) chain: ChainSection,
    pub(crate) source: Source,
    pub(crate) apply: Apply,
    #[serde(serialize_with = "sections::serialize_policy")]
    pub(crate) policy: Policy,
    pub(crate) pruner: PrunerOptions,
    pub(crate) bodies: BodiesSection,
    pub(crate) store: StoreSection,
    pub(crate) servers: Servers,
    pub(crate) log: Log,
    /// The file it was read from, from the root on. `None` if there was none.
    #[serde(skip)]
    pub(crate) file: Option<PathBuf>,
}

/// The file that is read if none is named.
pub(crate) const DEFAULT_FILE: &str = "sapwood.toml";

impl Config {
    /// The file that is read: the one named, or `sapwood.toml` if there is one.
    pub(crate) fn file(named: Option<&Path>) -> Option<PathBuf> {
        match named {
            Some(file) => Some(file.to_owned()),
            None => Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()),
        }
    }

    /// Reads the file, or `sapwood.toml` if there is one, and what the environment says.
    pub(crate) fn load(named: Option<&Path>) -> anyhow::Result<Self> {
        Self::read(Self::file(named))
    }

    /// Reads the file, or none, and what the environment says.
    pub(crate) fn read(file: Option<PathBuf>) -> anyhow::Result<Self> {
        let text = match &file {
            Some(file) => {
                std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?
            }
            None => String::new(),
        };
        let name = file.as_ref().map_or_else(|| "the environment".into(), |file| file.display().to_string());
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let config = read::read(&text, environment).with_context(|| name)?;
        Ok(Self { file: file.map(std::path::absolute).transpose()?, ..config })
    }
}

#[cfg(test)]
mod tests {
    use sapwood_engine_rocksdb::Options;

    use super::*;

    fn read(text: &str) -> anyhow::Result<Config> {
        read::read(text, std::iter::empty())
    }

    #[test]
    fn what_is_printed_reads_back_as_what_it_was() {
        let config = Config::default();
        assert_eq!(read(&render(&config).unwrap()).unwrap(), config);
        let changed = Config {
            policy: Policy { retention: 1000, ..Policy::default() },
            source: Source { password: "hunter2".into(), ..Source::default() },
            ..Config::default()
        };
        let printed = render(&changed).unwrap();
        assert!(printed.contains("\nretention = 1000\n") && !printed.contains("hunter2"), "{printed}");
        assert!(printed.contains("\nunmined_retention = 144\n"), "it does not follow: {printed}");
    }

    #[test]
    fn address_that_cannot_be_read_gets_an_example() {
        for name in ["http_address", "grpc_address"] {
            let error = read(&format!("[servers]\n{name} = \"localhost:8097\"")).unwrap_err();
            let said = format!("{error:#}");
            assert!(said.contains(name) && said.contains("127.0.0.1:8097"), "{said}");
        }
    }

    #[test]
    fn the_unmined_retention_follows_the_retention_unless_it_is_set() {
        let policy = |text: &str| read(&format!("[policy]\n{text}")).unwrap().policy;
        let with = policy("retention = 1000");
        assert_eq!((with.unmined_retention, with.reorg_window), (500, 288));
        assert_eq!(policy("retention = 1000\nunmined_retention = 7").unmined_retention, 7);
        assert_eq!(policy(""), Policy::default());
    }

    #[test]
    fn the_store_gets_what_is_set_and_its_own_defaults_otherwise() {
        let store = |text: &str| Options::from(&read(text).unwrap().store);
        assert_eq!(format!("{:?}", store("")), format!("{:?}", Options::default()));
        assert_eq!(store("[store]\nmined_heights_mib = 0").ledger.mined_heights_bytes, 0);
        assert_eq!(store("[store]\nmined_heights_mib = 149").ledger.mined_heights_bytes, 149 << 20);
    }

    #[test]
    fn unknown_keys_are_refused_with_the_nearest_match() {
        let error = |text: &str| format!("{:#}", read(text).unwrap_err());
        assert!(error("[policy]\nretenton = 5").contains("did you mean policy.retention?"));
        assert!(error("[polcy]\nretention = 5").contains("did you mean policy?"));
        assert!(error("retention = 5").contains("did you mean policy.retention?"));
        assert!(error("[policy]\nretention = \"many\"").contains("retention"));
        assert!(error("[policy\n").contains("line 1"), "{}", error("[policy\n"));
    }

    #[test]
    fn the_environment_wins_and_is_checked_like_the_file() {
        let with = |name: &str, value: &str| {
            read::read("[policy]\nretention = 5", [(name.to_owned(), value.to_owned())].into_iter())
        };
        assert_eq!(with("SAPWOOD_POLICY_RETENTION", "700").unwrap().policy.retention, 700);
        assert_eq!(with("SAPWOOD_SOURCE_NODE_URL", "http://x").unwrap().source.node_url, "http://x");
        let blocks = with("SAPWOOD_SOURCE_BLOCKS", "[\"a\", \"b\"]").unwrap().source.blocks;
        assert_eq!(blocks, [PathBuf::from("a"), PathBuf::from("b")]);
        assert_eq!(
            with("SAPWOOD_TEST_DATA", "x").unwrap().policy.retention,
            5,
            "others' variables are not ours"
        );
        let error = format!("{:#}", with("SAPWOOD_POLICY_RETENTON", "7").unwrap_err());
        assert!(error.contains("SAPWOOD_POLICY_RETENTON") && error.contains("policy.retention"), "{error}");
    }

    #[test]
    fn text_from_the_environment_is_text_whatever_it_looks_like() {
        let with =
            |name: &str, value: &str| read::read("", [(name.to_owned(), value.to_owned())].into_iter());
        for password in ["12345678", "true", "1.5", "2024-01-01", "[1]", "nan", "hunter 2", "a#b", "'"] {
            assert_eq!(with("SAPWOOD_SOURCE_PASSWORD", password).unwrap().source.password, password);
        }
        assert_eq!(with("SAPWOOD_DATA_DIRECTORY", "2024").unwrap().data.directory, PathBuf::from("2024"));
        assert_eq!(with("SAPWOOD_SOURCE_USER", "\"quoted\"").unwrap().source.user, "quoted");
        let error = format!("{:#}", with("SAPWOOD_SERVERS_REFRESH", "30").unwrap_err());
        assert!(error.contains("not a duration like 30s"), "{error}");
        assert!(with("SAPWOOD_POLICY_RETENTION", "many").is_err(), "a number is a number");
    }

    #[test]
    fn unsafe_values_are_refused_with_the_reason() {
        let mut config = Config::default();
        config.source.blocks = vec!["blocks".into()];
        config.validate().unwrap();
        config.servers.host_names = vec!["node.example.org".into()];
        config.validate().unwrap();
        config.servers.host_names = vec!["https://node.example.org".into()];
        let error = format!("{:#}", config.validate().unwrap_err());
        assert!(error.contains("names only"), "{error}");
        config.servers.host_names.clear();
        config.policy.retention = 100;
        let error = format!("{:#}", config.validate().unwrap_err());
        assert!(error.contains("less than the reorg window of 288"), "{error}");
        let node =
            Config { source: Source { kind: SourceKind::Node, ..Source::default() }, ..Config::default() };
        assert!(node.validate().unwrap_err().to_string().contains("source.node_url"));
        assert!(Config::default().validate().unwrap_err().to_string().contains("source.blocks"));
    }
}
