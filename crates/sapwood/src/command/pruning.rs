//! `sapwood prune`, `sapwood explain` and `sapwood hold`: on a running node over its HTTP interface, or on a data directory that nobody
//! has open.

use std::{path::PathBuf, sync::Arc};

use anyhow::bail;
use clap::{Args, Subcommand};
use sapwood_chain::{ChainState, Events};
use sapwood_pruner::{Bodies, BodyLocation, Pruner, PrunerHandle, PrunerOptions, SystemClock};
use sapwood_rules::Hold;
use sapwood_store::Store;
use sapwood_types::{Height, TxId};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    node::{Directory, runtime},
    remote::Remote,
};

/// Whom to ask.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// A data directory that no node has open. Without it a running node is asked.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the running node's HTTP interface is.
    #[arg(long, default_value = "http://127.0.0.1:8097", conflicts_with = "data")]
    url: String,
    /// The token, if the node wants one.
    #[arg(long, env = "SAPWOOD_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Print JSON. What a running node answers always is.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainTx {
    #[command(flatten)]
    target: Target,
    /// Its id.
    txid: TxId,
}

/// What to explain.
#[derive(Debug, Subcommand)]
pub(crate) enum Explain {
    /// Why a transaction's record is still here, and when it could go.
    Tx(ExplainTx),
}

#[derive(Debug, Args)]
pub(crate) struct AtHeight {
    #[command(flatten)]
    target: Target,
    /// As if the chain were at this height.
    #[arg(long)]
    height: Option<u32>,
}

/// What to do about pruning.
#[derive(Debug, Subcommand)]
pub(crate) enum Prune {
    /// Prune now.
    Now(AtHeight),
    /// What a run now would delete and what it would keep, without deleting anything.
    Plan(AtHeight),
    /// How pruning stands, and what holds it back.
    Status(Target),
    /// What the last jobs did.
    Jobs(Target),
    /// Enable pruning.
    Enable(Target),
    /// Disable pruning. It stays so after a restart.
    Disable(Target),
}

#[derive(Debug, Args)]
pub(crate) struct SetHold {
    #[command(flatten)]
    target: Target,
    /// Its name.
    name: String,
    /// Who needs it.
    #[arg(long, default_value = "operator")]
    owner: String,
    /// The first height that is still needed. Without it everything is.
    #[arg(long, value_name = "HEIGHT")]
    keep_from: Option<u32>,
    /// When it ends by itself, in seconds since 1970.
    #[arg(long, value_name = "SECONDS")]
    expires: Option<u64>,
    /// Why, for people.
    #[arg(long, default_value = "set by hand")]
    reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct NamedHold {
    #[command(flatten)]
    target: Target,
    /// Its name.
    name: String,
}

/// What to do about holds: they say up to which height somebody still needs the past.
#[derive(Debug, Subcommand)]
pub(crate) enum HoldCommand {
    /// Set a hold, or renew it with another height, reason or end.
    #[command(alias = "renew")]
    Set(SetHold),
    /// List all holds and what they do.
    List(Target),
    /// Release a hold.
    Release(NamedHold),
}

/// The pruner of a data directory that nobody has open.
struct Local {
    pruner: PrunerHandle,
    events: Events,
    json: bool,
}

impl Target {
    fn remote(&self) -> anyhow::Result<Remote> {
        Remote::new(&self.url, self.token.as_deref())
    }

    /// Opens the data directory, if one is named. Nothing is pruned unless asked for.
    async fn local(&self) -> anyhow::Result<Option<Local>> {
        let Some(data) = &self.data else { return Ok(None) };
        let directory = Directory::new(data);
        let (node, store) = directory.open_existing()?;
        let events = Events::default();
        let bodies = Bodies::open(&BodyLocation::Directory(directory.bodies()))?;
        let options = PrunerOptions { look_every: None, ..PrunerOptions::with_policy(node.policy.into()) };
        let store = Arc::new(store) as Arc<dyn Store>;
        let pruner =
            Pruner::start(store, events.clone(), Some(bodies), options, Arc::new(SystemClock)).await?;
        Ok(Some(Local { pruner, events, json: self.json }))
    }
}

impl Local {
    fn show<T: Serialize + ToString>(&self, what: &T) -> anyhow::Result<()> {
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(what)?),
            false => println!("{}", what.to_string().trim_end()),
        }
        Ok(())
    }
}

fn show(answer: &Value) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(answer)?);
    Ok(())
}

impl Explain {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Explain::Tx(ExplainTx { target, txid }) = self;
        runtime()?.block_on(async {
            match target.local().await? {
                Some(local) => local.show(&local.pruner.explain(txid).await?),
                None => show(&target.remote()?.get(&format!("/api/v1/txs/{txid}/explain")).await?),
            }
        })
    }
}

impl Prune {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        runtime()?.block_on(async {
            let target = match &self {
                Prune::Now(at) | Prune::Plan(at) => at.target.clone(),
                Prune::Status(target)
                | Prune::Jobs(target)
                | Prune::Enable(target)
                | Prune::Disable(target) => target.clone(),
            };
            match target.local().await? {
                Some(local) => self.on(local).await,
                None => show(&self.at(&target.remote()?).await?),
            }
        })
    }

    async fn on(self, local: Local) -> anyhow::Result<()> {
        let pruner = &local.pruner;
        match self {
            Prune::Now(at) => {
                // Nobody follows the chain meanwhile, so nothing can be taken back while this runs.
                local.events.enter(ChainState::Running);
                let id = pruner.prune_now(at.height.map(Height))?;
                let Some(job) = pruner.wait(id).await else { bail!("job {id} is not remembered") };
                local.show(&job)?;
                pruner.stop().await;
            }
            Prune::Plan(at) => local.show(&pruner.plan(at.height.map(Height), u64::MAX).await?)?,
            Prune::Status(_) => local.show(&pruner.status().await?)?,
            Prune::Jobs(_) => bail!("jobs are remembered by a running node only: leave --data out to ask it"),
            Prune::Enable(_) => {
                pruner.enable().await?;
                println!("pruning is enabled");
            }
            Prune::Disable(_) => {
                pruner.disable().await?;
                println!("pruning is disabled");
            }
        }
        Ok(())
    }

    async fn at(self, remote: &Remote) -> anyhow::Result<Value> {
        let query =
            |height: Option<u32>| height.map_or_else(String::new, |height| format!("?height={height}"));
        match self {
            Prune::Now(at) => remote.post("/api/v1/prune", &json!({ "height": at.height })).await,
            Prune::Plan(at) => remote.get(&format!("/api/v1/prune/plan{}", query(at.height))).await,
            Prune::Status(_) => remote.get("/api/v1/prune").await,
            Prune::Jobs(_) => remote.get("/api/v1/prune/jobs").await,
            Prune::Enable(_) => remote.put("/api/v1/prune/enabled", &json!({ "enabled": true })).await,
            Prune::Disable(_) => remote.put("/api/v1/prune/enabled", &json!({ "enabled": false })).await,
        }
    }
}

impl HoldCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        runtime()?.block_on(async {
            let target = match &self {
                HoldCommand::Set(set) => set.target.clone(),
                HoldCommand::List(target) => target.clone(),
                HoldCommand::Release(named) => named.target.clone(),
            };
            match target.local().await? {
                Some(local) => self.on(local).await,
                None => show(&self.at(&target.remote()?).await?),
            }
        })
    }

    async fn on(self, local: Local) -> anyhow::Result<()> {
        let holds = local.pruner.holds();
        match self {
            HoldCommand::Set(SetHold { name, owner, keep_from, expires, reason, .. }) => {
                let keep_from = keep_from.map(Height);
                holds.set(Hold { name: name.clone(), owner, keep_from, expires, reason }).await?;
                println!("{name} is set");
            }
            HoldCommand::List(_) => {
                for hold in local.pruner.list_holds().await? {
                    local.show(&hold)?;
                }
            }
            HoldCommand::Release(named) => {
                holds.release(&named.name).await?;
                println!("{} is released", named.name);
            }
        }
        Ok(())
    }

    async fn at(self, remote: &Remote) -> anyhow::Result<Value> {
        match self {
            HoldCommand::Set(SetHold { name, owner, keep_from, expires, reason, .. }) => {
                let hold =
                    json!({ "owner": owner, "keep_from": keep_from, "expires": expires, "reason": reason });
                remote.put(&format!("/api/v1/holds/{name}"), &hold).await
            }
            HoldCommand::List(_) => remote.get("/api/v1/holds").await,
            HoldCommand::Release(named) => remote.delete(&format!("/api/v1/holds/{}", named.name)).await,
        }
    }
}
