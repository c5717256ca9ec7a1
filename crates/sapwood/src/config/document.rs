//! What each setting means, and the configuration printed with that.

use toml::{Table, Value};

use super::Config;

/// Every section and every setting, in the order in which they are printed.
pub(super) const MEANINGS: &[(&str, &str)] = &[
    ("data", "Where everything is kept."),
    ("data.directory", "The data directory. It is made if it is not there."),
    ("chain", "Which chain, and what is kept about it besides the UTXO set."),
    ("chain.network", "mainnet, testnet3, testnet4, signet, regtest, or signet:MAGIC for a private signet."),
    ("chain.address_index", "Keep unspent outputs by address. Fixed when the data directory is made."),
    (
        "chain.credential_index",
        "Keep unspent outputs by payment credential, which only a fed node is told of. Fixed when the data directory is made.",
    ),
    (
        "chain.utxo_hash",
        "Keep the hash of the UTXO set (MuHash3072, as Bitcoin Core has it) up to date with each block. Turned on for a data directory that \
         does not keep it, it is kept from the first count on (`sapwood get utxo-set`); turned off, it is dropped with the next block.",
    ),
    ("source", "Where blocks come from."),
    (
        "source.kind",
        "\"blocks\": block files. \"node\": a running node, over its JSON-RPC. \"feed\": none; clients hand over blocks by gRPC.",
    ),
    (
        "source.blocks",
        "Block files, or directories of them such as a node's `blocks`. New blocks are noticed.",
    ),
    ("source.node_url", "The node's address, such as http://127.0.0.1:8332."),
    ("source.node_directory", "The node's data directory, where its cookie is. Unless a user is given."),
    ("source.user", "The user for the node's JSON-RPC."),
    ("source.password", "The user's password. Better given by SAPWOOD_SOURCE_PASSWORD than in a file."),
    ("source.node_timeout", "How long the node may take for one answer. At least 1s."),
    (
        "source.no_block_alert",
        "With no new block for longer than this there is an alert and the node is not ready. 0s for never.",
    ),
    ("apply", "How blocks are applied."),
    ("apply.mode", "\"sync\": one after the other. \"async\": by a worker of its own, through a queue."),
    ("apply.queue", "How many blocks may wait in the queue."),
    ("apply.read_ahead", "How many blocks are fetched and decoded ahead of time."),
    (
        "apply.rollback",
        "What becomes of transactions whose block is rolled back. \"follower\": forgotten. \"node\": unmined again, for a node \
         that will mine them itself.",
    ),
    (
        "policy",
        "How long things are kept, in blocks. A number that keeps less than the data directory does has no effect by itself: `sapwood policy \
         set` shortens.",
    ),
    ("policy.retention", "Blocks a record is kept after it settled. 0: records are never pruned."),
    ("policy.reorg_window", "How many blocks can be rolled back. At most the retention, unless that is 0."),
    ("policy.coinbase_maturity", "Blocks before a coinbase's outputs may be spent."),
    ("policy.reassignment_delay", "Blocks before a reassigned output may be spent."),
    (
        "policy.unmined_retention",
        "Blocks after which an unmined transaction is old, and its parents are preserved. Half of the retention unless set.",
    ),
    ("policy.parent_preservation", "Blocks for which those parents are preserved."),
    ("pruner", "When and how records are deleted that no consumer needs any more."),
    (
        "pruner.enabled",
        "Prune at all. `sapwood prune enable` and `disable` win over this, and are remembered.",
    ),
    (
        "pruner.child_check",
        "Read the children of each record before it is deleted, and retain it if they do not confirm what it remembers.",
    ),
    ("pruner.while_catching_up", "Prune while old blocks are being caught up on."),
    ("pruner.delete_due", "Delete records that are due. Without it parents are preserved all the same."),
    ("pruner.block_assembly_ttl", "Once its last report is older, block assembly counts as not running."),
    ("pruner.chunk_records", "Records judged and deleted in one write."),
    ("pruner.parallel_chunks", "Chunks in flight at the same time while no block is being applied."),
    ("pruner.job_timeout", "How long a job may take."),
    ("pruner.progress_log", "How often a long job logs its progress, or \"never\"."),
    (
        "pruner.look_every",
        "How often to look through everything that is due, whatever happened, or \"never\".",
    ),
    ("pruner.records_per_job", "Records a job looks at before it makes room for a newer request."),
    ("pruner.time_per_job", "How long a job works before it makes room for a newer request."),
    ("pruner.job_history", "Jobs that are remembered after they ended."),
    (
        "pruner.busy_share",
        "The share of the time spent on pruning while blocks follow one another: above 0, at most 1. In pauses it is all.",
    ),
    ("pruner.quiet_after", "After this long without a block it is a pause."),
    (
        "pruner.full_speed_above",
        "With more due records than this it is all of the time, whatever the blocks do. A million take about 250 MB.",
    ),
    ("bodies", "Where bodies of large transactions are kept. Each store needs a place of its own."),
    ("bodies.kind", "\"directory\" or \"s3\"."),
    (
        "bodies.above_kib",
        "Transactions above this size, or with more than 128 outputs, keep their body here, apart from their record.",
    ),
    ("bodies.directory", "The directory. Empty: `bodies` in the data directory."),
    ("bodies.endpoint", "The address of an S3 server that is not Amazon's."),
    ("bodies.bucket", "The bucket. It has to exist."),
    ("bodies.region", "The bucket's region."),
    ("bodies.access_key_id", "The key's name. Empty: taken from where the S3 client finds it."),
    ("bodies.secret_access_key", "The key. Better given by SAPWOOD_BODIES_SECRET_ACCESS_KEY than in a file."),
    ("bodies.allow_http", "Speak to the server without TLS."),
    ("store", "The embedded store. The defaults suit two cores and a few gigabytes."),
    ("store.block_cache_mib", "Memory for data read from disk."),
    ("store.record_cache_mib", "Memory for records touched lately."),
    (
        "store.mined_heights_mib",
        "Memory for the heights at which transactions were mined, so that pruner.child_check need not read them from disk; 0 for \
         none. 75 holds the youngest 0.9 to 1.8 million transactions, 149 twice as many; what is in between is not used.",
    ),
    (
        "store.children_per_read",
        "Records of children that pruner.child_check reads from disk in one go. More take more memory.",
    ),
    ("store.write_buffer_mib", "Memory of one write buffer. Larger means a longer replay after a crash."),
    ("store.write_buffers", "How many write buffers may wait before writers have to."),
    (
        "store.background_jobs",
        "Threads for flushing and compacting; 0 for as many as there are cores, from 2 to 64.",
    ),
    ("store.max_open_files", "Files kept open at most; -1 for all."),
    ("store.compression", "Compress what is on disk."),
    (
        "store.durability",
        "What a write survives. \"process_crash\": kill -9; after a power failure the last second can be missing. \
         \"power_loss\": that too, at a device sync a block. \"clean_stop_only\": no log at all, for bulk loading; after a crash \
         many blocks are gone.",
    ),
    (
        "store.disk_reserve_mib",
        "What stays free on the store's disk: with less, no block is applied until there is more again. Reading and pruning go on. \
         0 turns it off.",
    ),
    ("servers", "Where clients connect. Beyond loopback a token is needed, and TLS is wise."),
    ("servers.grpc", "Serve gRPC."),
    ("servers.grpc_address", "Where gRPC is served."),
    ("servers.http", "Serve HTTP: the status page, REST, metrics and health."),
    ("servers.http_address", "Where HTTP is served."),
    (
        "servers.read_token",
        "The token that clients need to read. Empty: reading on loopback is open. Better given by the environment.",
    ),
    (
        "servers.admin_token",
        "The token that clients need to change something, over REST and gRPC, on loopback too. Empty: one is made at the first start and kept in \
         `admin.token` in the data directory, where commands find it. Better given by the environment.",
    ),
    (
        "servers.allow_utxo_admin",
        "Let the admin token freeze, unfreeze, reassign, lock and preserve over gRPC on a node that follows a source. A block that spends \
         a frozen or locked output is refused then, and the node stands still.",
    ),
    ("servers.certificate", "A certificate in PEM, for TLS."),
    ("servers.key", "Its key in PEM."),
    (
        "servers.max_connections",
        "Connections at the same time, for each server. 32 more are reserved for health checks and the admin token.",
    ),
    (
        "servers.max_connections_per_peer",
        "Connections at the same time from one address, or one IPv6 /64, for each server.",
    ),
    ("servers.requests_per_second", "Requests a second for each connection."),
    (
        "servers.give_way",
        "Let blocks go first: threads that answer requests have a lower priority than those that apply blocks.",
    ),
    (
        "servers.host_names",
        "Names under which clients reach HTTP, through a reverse proxy for example. Without a token it answers only to them, to \
         localhost and to addresses.",
    ),
    ("servers.refresh", "How often stats are measured and the page asks for them. From 100ms to 1m."),
    (
        "servers.heavy_statistics",
        "Measure what takes more time: the hash of the UTXO set at each block, the engine and the disk every five seconds instead of \
         once a minute.",
    ),
    ("servers.ready_lag", "With more blocks to go than this the node is not ready."),
    ("servers.disk_limit_gib", "Disk use above which there is an alert. 0 for none."),
    ("log", "What is logged, to standard error."),
    (
        "log.level",
        "error, warn, info, debug, trace or off; or by module, as in RUST_LOG, which wins. Changes over REST and gRPC are logged all the \
         same, unless `audit=off` is in it.",
    ),
];

/// Settings whose values are not for other eyes.
const SECRETS: &[&str] =
    &["source.password", "bodies.secret_access_key", "servers.read_token", "servers.admin_token"];

/// The configuration as a commented file. Secrets are left out.
pub(crate) fn render(config: &Config) -> anyhow::Result<String> {
    let table = Table::try_from(config)?;
    let mut text = String::from(
        "# Sapwood's configuration. Any setting can be overridden by the environment: SAPWOOD_POLICY_RETENTION=1000.\n",
    );
    for (key, meaning) in MEANINGS {
        match key.split_once('.') {
            None => text.push_str(&format!("\n{}[{key}]\n", comment(meaning))),
            Some((section, name)) => {
                let value =
                    table.get(section).and_then(Value::as_table).and_then(|section| section.get(name));
                text.push_str(&comment(meaning));
                let Some(value) = value else {
                    text.push_str(&format!("# {name} is not set\n"));
                    continue;
                };
                let is_set = value.as_str().is_some_and(|value| !value.is_empty());
                if SECRETS.contains(key) && is_set {
                    text.push_str(&format!("# {name} is set, and not shown\n"));
                } else {
                    text.push_str(&format!("{name} = {value}\n"));
                }
            }
        }
    }
    Ok(text)
}

/// A comment, in lines that are not too long.
fn comment(text: &str) -> String {
    const WIDTH: usize = 110;
    let mut lines = String::new();
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + word.len() + 1 > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page is made from here: SAPWOOD_WRITE_DOCS=1 writes it.
    #[test]
    fn the_page_about_the_configuration_is_up_to_date() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let page = format!(
            "# Configuration\n\nOne TOML file: `sapwood.toml` in the working directory, or the one named by `--config`. Unknown keys are \
             refused with the\nnearest match, unsafe values with the reason. `sapwood config check FILE` refuses all that `sapwood run` \
             refuses, but for what the data directory says. In the environment a text need not be quoted. `sapwood config` prints what is in effect; this is \
             `sapwood config --defaults`:\n\n```toml\n{}```\n",
            render(&Config::default()).unwrap()
        );
        if std::env::var_os("SAPWOOD_WRITE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), page, "run this test with SAPWOOD_WRITE_DOCS=1");
    }

    #[test]
    fn every_setting_is_documented_and_nothing_else_is() {
        let table = Table::try_from(Config::default()).unwrap();
        let mut keys = Vec::new();
        for (section, settings) in &table {
            keys.push(section.clone());
            keys.extend(settings.as_table().unwrap().keys().map(|name| format!("{section}.{name}")));
        }
        // It follows another setting unless it is set.
        keys.push("policy.unmined_retention".into());
        let mut documented: Vec<String> = MEANINGS.iter().map(|(key, _)| key.to_string()).collect();
        keys.sort();
        documented.sort();
        assert_eq!(keys, documented);
    }

    #[test]
    fn m16_the_documents_name_no_setting_that_does_not_exist() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let documents = ["README.md", "docs/pruner.md", "docs/operations.md", "docs/http.md", "docs/grpc.md"];
        for document in documents {
            let text = std::fs::read_to_string(root.join(document)).unwrap();
            for quoted in text.split('`').skip(1).step_by(2) {
                let end = quoted.find(|one: char| !(one.is_ascii_lowercase() || "._".contains(one)));
                let key = &quoted[..end.unwrap_or(quoted.len())];
                let section = key.split_once('.').map(|(section, _)| section);
                let of_file =
                    section.is_some_and(|section| MEANINGS.iter().any(|(known, _)| *known == section));
                let known = MEANINGS.iter().any(|(known, _)| *known == key);
                assert!(!of_file || known || key.ends_with(".rs"), "{document} names a setting {key}");
            }
        }
    }
}
