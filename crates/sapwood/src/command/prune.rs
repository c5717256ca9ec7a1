//! `sapwood prune`: prune, or see what would be pruned and what holds it back.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use sapwood_pruner::{Job, JobState, Plan, PrunerStatus};
use serde_json::{Value, json};

use crate::{
    client::{Access, Answer, Client, Target},
    node::runtime,
    show,
};

/// How often a running node is asked whether a job is over.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(crate) struct AtHeight {
    #[command(flatten)]
    target: Target,
    /// As if the chain were at this height, which is at most its own: a greater one is taken for that.
    #[arg(long)]
    height: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct ToPlan {
    #[command(flatten)]
    at: AtHeight,
    /// Look at no more due records than this, up to 1,000,000.
    #[arg(long, default_value_t = 100_000)]
    limit: u64,
}

/// What to do about pruning.
#[derive(Debug, Subcommand)]
pub(crate) enum Prune {
    /// Prune now, and wait until the job is over. Fails if it failed, was cancelled or did not run.
    Now(AtHeight),
    /// What a job now would delete and what it would retain, without deleting anything.
    Plan(ToPlan),
    /// How pruning stands, and what holds it back.
    Status(Target),
    /// What the last jobs did.
    Jobs(Target),
    /// Enable pruning.
    Enable(Target),
    /// Disable pruning. It stays so after a restart.
    Disable(Target),
}

impl Prune {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        runtime()?.block_on(async {
            match self {
                Prune::Now(AtHeight { target, height }) => {
                    let client = target.open(Access::Change).await?;
                    let asked = client.post("/api/v1/prune", &json!({ "height": height })).await?;
                    let over = wait(&client, asked).await?;
                    client.show(&over, Job::to_string)?;
                    client.close().await;
                    completed(&over.view)
                }
                Prune::Plan(ToPlan { at: AtHeight { target, height }, limit }) => {
                    let client = target.open(Access::LookAtBodies).await?;
                    let height = height.map_or_else(String::new, |height| format!("&height={height}"));
                    let path = format!("/api/v1/prune/plan?limit={limit}{height}");
                    let plan = client.get::<Plan>(&path).await?;
                    client.show(&plan, Plan::to_string)
                }
                Prune::Status(target) => {
                    let client = target.open(Access::Look).await?;
                    client.show(&client.get::<PrunerStatus>("/api/v1/prune").await?, PrunerStatus::to_string)
                }
                Prune::Jobs(target) => {
                    let client = target.open(Access::Look).await?;
                    client.show(&client.get::<Vec<Job>>("/api/v1/prune/jobs").await?, |jobs| show::jobs(jobs))
                }
                Prune::Enable(target) => enable(&target, true).await,
                Prune::Disable(target) => enable(&target, false).await,
            }
        })
    }
}

async fn enable(target: &Target, enabled: bool) -> anyhow::Result<()> {
    let client = target.open(Access::Change).await?;
    let answer = client.put::<Value>("/api/v1/prune/enabled", &json!({ "enabled": enabled })).await?;
    client.show(&answer, |_| format!("pruning is {}", if enabled { "enabled" } else { "disabled" }))?;
    client.close().await;
    Ok(())
}

/// Refuses a job that did not do what it was asked to.
fn completed(job: &Job) -> anyhow::Result<()> {
    let stopped = job.stopped_early.as_ref().map(ToString::to_string);
    let why = job.error.clone().or(stopped).unwrap_or_else(|| "no reason is known".into());
    match job.state {
        JobState::Completed => Ok(()),
        JobState::Failed => bail!("job {} failed: {why}", job.id),
        state => bail!("job {} was {}: {why}", job.id, state.name()),
    }
}

/// Waits until a job, or the one that took its place, is over.
async fn wait(client: &Client, mut job: Answer<Job>) -> anyhow::Result<Answer<Job>> {
    loop {
        let id = match (job.view.superseded_by, job.view.ended_at) {
            (Some(by), _) => by,
            (None, Some(_)) => return Ok(job),
            (None, None) => job.view.id,
        };
        tokio::time::sleep(LOOK_EVERY).await;
        job = client.get(&format!("/api/v1/prune/jobs/{id}")).await?;
    }
}
