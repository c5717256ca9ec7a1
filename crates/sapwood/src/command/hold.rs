//! `sapwood hold`: holds say up to which height a consumer still needs the past.

use clap::{Args, Subcommand};
use sapwood_server::views::HoldReport;
use serde_json::{Value, json};

use crate::{
    client::{Access, Target, part},
    node::runtime,
    show,
};

/// What to do about holds: they say up to which height a consumer still needs the past.
#[derive(Debug, Subcommand)]
pub(crate) enum HoldCommand {
    /// Set a hold, or renew it with another height, reason or end.
    Set(SetHold),
    /// List all holds and what they do.
    List(Target),
    /// Release a hold.
    Release(NamedHold),
}

#[derive(Debug, Args)]
pub(crate) struct SetHold {
    #[command(flatten)]
    target: Target,
    /// Its name.
    name: String,
    /// The consumer that needs it.
    #[arg(long, default_value = "operator")]
    owner: String,
    /// The first height that is still needed. Without it everything is.
    #[arg(long, value_name = "HEIGHT")]
    keep_from: Option<u32>,
    /// When it ends by itself, as a Unix timestamp in seconds.
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

impl HoldCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        runtime()?.block_on(async {
            match self {
                HoldCommand::Set(SetHold { target, name, owner, keep_from, expires, reason }) => {
                    let client = target.open(Access::Change).await?;
                    let hold =
                        json!({ "owner": owner, "keep_from": keep_from, "expires": expires, "reason": reason });
                    let set = client.put::<HoldReport>(&path(&name), &hold).await?;
                    client.show(&set, show::hold)?;
                    client.close().await;
                    Ok(())
                }
                HoldCommand::List(target) => {
                    let client = target.open(Access::Look).await?;
                    client.show(&client.get::<Vec<HoldReport>>("/api/v1/holds").await?, |holds| show::holds(holds))
                }
                HoldCommand::Release(NamedHold { target, name }) => {
                    let client = target.open(Access::Change).await?;
                    let released = client.delete::<Value>(&path(&name)).await?;
                    client.show(&released, |_| format!("{name} is released"))?;
                    client.close().await;
                    Ok(())
                }
            }
        })
    }
}

/// A hold's name may have slashes.
fn path(name: &str) -> String {
    format!("/api/v1/holds/{}", name.split('/').map(part).collect::<Vec<_>>().join("/"))
}
