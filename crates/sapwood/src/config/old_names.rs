//! What the settings are called in the system this pruner was learned from, for operators who know those names.

use toml::{Table, Value};

use super::Config;

/// A setting of the other system, its default there, and the setting here that does the same.
struct OldName {
    old: &'static str,
    old_default: &'static str,
    /// Its key in the configuration file.
    key: &'static str,
    note: &'static str,
}

const fn row(old: &'static str, old_default: &'static str, key: &'static str, note: &'static str) -> OldName {
    OldName { old, old_default, key, note }
}

const OLD_NAMES: &[OldName] = &[
    row("startPruner", "true", "pruner.enabled", "can be changed while it runs"),
    row("pruner_grpcPort", "8096", "servers.grpc_address", "port and address are one setting"),
    row("pruner_grpcAddress", "localhost:8096", "servers.grpc_address", ""),
    row("pruner_jobTimeout", "10m", "pruner.job_timeout", ""),
    row("pruner_utxoChunkSize", "1000", "pruner.chunk_records", ""),
    row("pruner_utxoChunkGroupLimit", "10", "pruner.parallel_chunks", "one while blocks are being applied"),
    row("pruner_utxoProgressLogInterval", "30s", "pruner.progress_log", "`never` turns it off"),
    row("pruner_utxoDefensiveEnabled", "false", "pruner.child_check", "on by default"),
    row(
        "pruner_utxoDefensiveBatchReadSize",
        "10000",
        "store.children_per_read",
        "only of children whose height is not in memory, see `store.mined_heights_mib`",
    ),
    row("globalBlockHeightRetention", "288", "policy.retention", "can be changed while it runs"),
    row("utxostore_unminedTxRetention", "retention / 2", "policy.unmined_retention", ""),
    row(
        "utxostore_parentPreservationBlocks",
        "blocks of ten days",
        "policy.parent_preservation",
        "ten days are 1,440 blocks",
    ),
    row("utxostore_disableDAHCleaner", "false", "pruner.delete_due", "the other way round"),
];

/// The table of `docs/pruner.md`. The names and defaults here are those of the configuration.
fn table() -> anyhow::Result<String> {
    let defaults = Table::try_from(Config::default())?;
    let default = |key: &str| {
        let (section, name) = key.split_once('.')?;
        defaults.get(section)?.get(name).map(|value| match value {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        })
    };
    let mut table =
        String::from("| there | default there | here | default here | |\n|---|---|---|---|---|\n");
    for OldName { old, old_default, key, note } in OLD_NAMES {
        let default = default(key).unwrap_or_else(|| "half of `policy.retention`".into());
        let note = if note.is_empty() { String::new() } else { format!(" {note}") };
        table += &format!("| `{old}` | {old_default} | `{key}` | {default} |{note} |\n");
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use sapwood_engine_rocksdb::Options;
    use sapwood_pruner::PrunerOptions;

    use super::*;
    use crate::config::{document::MEANINGS, read};

    /// The section is made from here: SAPWOOD_WRITE_DOCS=1 writes it again.
    #[test]
    fn m16_the_table_of_settings_is_made_from_the_configuration() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pruner.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let heading = "## Settings, and what they were called\n";
        let (before, rest) = page.split_once(heading).unwrap();
        let (_, after) = rest.split_once("\n## ").unwrap();
        let made = format!(
            "{before}{heading}For operators who know the names of the system this was learned from. Made from the configuration: \
             what each setting means is in\n[configuration.md](configuration.md).\n\n{}\n## {after}",
            table().unwrap()
        );
        if std::env::var_os("SAPWOOD_WRITE_DOCS").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), made, "run this test with SAPWOOD_WRITE_DOCS=1");
    }

    /// Everything the configuration makes of itself for the parts of a node.
    fn in_effect(config: &Config) -> String {
        let pruner = PrunerOptions { policy: config.policy().unwrap(), ..config.pruner.clone() };
        let store = Options::from(&config.store);
        format!("{pruner:?} {store:?} {}", config.servers.options().unwrap().grpc.address)
    }

    #[test]
    fn every_setting_of_the_table_is_known_and_reaches_its_part() {
        let other = |key: &str| match key {
            "servers.grpc_address" => "\"127.0.0.1:9096\"",
            "pruner.job_timeout" | "pruner.progress_log" => "\"7m\"",
            "pruner.enabled" | "pruner.child_check" | "pruner.delete_due" => "false",
            "policy.retention" => "1000",
            _ => "7",
        };
        for OldName { key, .. } in OLD_NAMES {
            assert!(MEANINGS.iter().any(|(known, _)| known == key), "there is no setting {key}");
            let (section, name) = key.split_once('.').unwrap();
            let file = format!("[{section}]\n{name} = {}\n", other(key));
            let config = read::read(&file, std::iter::empty()).unwrap();
            assert_ne!(in_effect(&config), in_effect(&Config::default()), "{key} changes nothing");
        }
    }
}
