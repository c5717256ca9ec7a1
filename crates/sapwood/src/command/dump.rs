//! `sapwood dump`, `sapwood load` and `sapwood upgrade`: a store as a whole.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, IsTerminal as _, Read},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use clap::Args;
use sapwood_engine_rocksdb::{OpenMode, RocksEngine, RocksOptions};
use sapwood_ledger::{
    Ledger, LedgerOptions, SCHEMA_VERSION,
    dump::{DumpError, DumpReader, Dumped, EachProgress},
};
use sapwood_pruner::text::{bytes, counted};
use sapwood_rules::Policy;

use super::DataArg;
use crate::node::{Directory, counting_bar, runtime};

/// The name of standard input and output.
const STANDARD: &str = "-";
/// Bytes between two calls of the operating system.
const BUFFER: usize = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    data: DataArg,
    /// The new file, or - for standard output.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Write over a file that exists.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Load {
    /// The new data directory.
    #[arg(long, value_name = "DIR", env = "SAPWOOD_DATA", required_unless_present = "check")]
    data: Option<PathBuf>,
    /// Only check the dump: nothing is loaded.
    #[arg(long)]
    check: bool,
    /// The dump, or - for standard input.
    file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    #[command(flatten)]
    data: DataArg,
}

impl Dump {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Self { data, to, force } = self;
        let directory = data.directory();
        let (ledger, rows) = runtime()?.block_on(async {
            let ledger = directory.look().await?.store;
            let stats = ledger.engine_stats(None).await?;
            anyhow::Ok((ledger, stats.iter().map(|table| table.rows).sum()))
        })?;
        if to == Path::new(STANDARD) {
            if io::stdout().is_terminal() {
                bail!("a dump is not text: name a file with --to, or send it through a pipe");
            }
            let dumped = write_dump(&ledger, io::stdout().lock(), rows)?;
            eprintln!("{}", text(&dumped));
            return Ok(());
        }
        if !force && to.exists() {
            bail!("{} exists: give --force to write over it", to.display());
        }
        // Whole or not at all: a new file takes the place of the old one.
        let temporary = temporary(&to);
        let doing = || format!("writing {}", temporary.display());
        let mut file = BufWriter::with_capacity(BUFFER, File::create(&temporary).with_context(doing)?);
        let mut write = || -> anyhow::Result<Dumped> {
            let dumped = write_dump(&ledger, &mut file, rows)?;
            file.get_ref().sync_all()?;
            std::fs::rename(&temporary, &to)?;
            Ok(dumped)
        };
        let dumped = write().with_context(doing).inspect_err(|_| {
            // Whatever is wrong with it was said.
            let _ = std::fs::remove_file(&temporary);
        })?;
        println!("{}: {}", to.display(), text(&dumped));
        Ok(())
    }
}

/// The file that becomes the dump once it is whole.
fn temporary(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Writes a dump, and shows how many of about `rows` rows are written.
fn write_dump(ledger: &Ledger, to: impl io::Write, rows: u64) -> Result<Dumped, DumpError> {
    let (bar, show) = counting_bar("dumping");
    let dumped = ledger.dump(to, &|progress| {
        show(progress.rows, rows);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    dumped
}

impl Load {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match &self.data {
            Some(data) if !self.check => load(&Directory::new(data), &self.file),
            _ => check(&self.file),
        }
    }
}

impl Upgrade {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let directory = self.data.directory();
        open_for_writing(&directory.store())?;
        println!("{}: schema version {SCHEMA_VERSION}", directory.path().display());
        Ok(())
    }
}

/// Makes a data directory from a dump.
fn load(directory: &Directory, file: &Path) -> anyhow::Result<()> {
    if directory.has_node_file() {
        bail!("{} holds a chain already: load into a new directory", directory.path().display());
    }
    let loading = || format!("loading {}", file.display());
    let (input, length) = open(file)?;
    let dump = DumpReader::open(input).with_context(loading)?;
    directory.make()?;
    let engine = RocksEngine::open(&directory.store(), OpenMode::Create, &RocksOptions::default())?;
    let loaded = shown("loading", length, |progress| dump.load(&engine, progress)).with_context(loading)?;
    drop(engine);
    // Opened once as any command would: an older schema is migrated, and the directory says what it holds.
    open_for_writing(&directory.store())?;
    if let Some(node) = directory.read()? {
        directory.claim(&node)?;
    }
    println!("{}: {}", directory.path().display(), text(&loaded));
    Ok(())
}

/// Reads a dump and checks it.
fn check(file: &Path) -> anyhow::Result<()> {
    let checking = || format!("checking {}", file.display());
    let (input, length) = open(file)?;
    let dump = DumpReader::open(input).with_context(checking)?;
    let checked = shown("checking", length, |progress| dump.check(progress)).with_context(checking)?;
    println!("{}", text(&checked));
    Ok(())
}

/// Shows how much of a stream of `length` bytes was read while `work` reads it.
fn shown<T>(what: &str, length: Option<u64>, work: impl FnOnce(&EachProgress<'_>) -> T) -> T {
    let (bar, show) = counting_bar(what);
    let done = work(&|progress| {
        show(progress.bytes, length.unwrap_or(progress.bytes));
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    done
}

/// Opens what is there for writing, and closes it.
fn open_for_writing(store: &Path) -> anyhow::Result<()> {
    let engine = Arc::new(RocksEngine::open(store, OpenMode::Existing, &RocksOptions::default())?);
    let options = LedgerOptions { create: false, ..LedgerOptions::default() };
    Ledger::open_as_made(engine, Policy::default(), options)?;
    Ok(())
}

/// Opens a dump. Returns its length where it is known.
fn open(file: &Path) -> anyhow::Result<(Box<dyn Read>, Option<u64>)> {
    if file == Path::new(STANDARD) {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let doing = || format!("reading {}", file.display());
    let opened = File::open(file).with_context(doing)?;
    let metadata = opened.metadata().with_context(doing)?;
    let length = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(BufReader::with_capacity(BUFFER, opened)), length))
}

/// Describes a dump in one line.
fn text(dumped: &Dumped) -> String {
    let Dumped { header, rows, bytes: length, digest } = dumped;
    let identity = header.identity.as_deref().unwrap_or("a network that is not named");
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{identity}, {}, {}, schema version {} by {}, write {}, SHA-256 {digest}",
        counted(*rows, "row"),
        bytes(*length),
        header.schema,
        header.program,
        header.number
    )
}
