//! `sapwood hold`: holds say from which height on a consumer still needs history.

use std::time::UNIX_EPOCH;

use clap::{Args, Subcommand};
use sapwood_pruner::HoldStatus;
use sapwood_rules::Hold;
use sapwood_types::Height;
use serde_json::Value;

use crate::{
    client::{Access, Target, part},
    node::runtime,
    show,
};

/// What to do about holds: they say from which height on a consumer still needs history.
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
    /// When it ends by itself: a duration from now, such as 2h or 30days, or a Unix timestamp in seconds. Without it, it has no end.
    #[arg(long, value_name = "DURATION|TIMESTAMP", value_parser = expiry)]
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
                    let path = path(&name)?;
                    let client = target.open(Access::Change).await?;
                    let keep_from = keep_from.map(Height);
                    let hold = Hold { name, owner, keep_from, expires, reason };
                    let set = client.put::<HoldStatus>(&path, &serde_json::to_value(hold)?).await?;
                    client.show(&set, HoldStatus::to_string)?;
                    client.close().await;
                    Ok(())
                }
                HoldCommand::List(target) => {
                    let client = target.open(Access::Look).await?;
                    client.show(&client.get::<Vec<HoldStatus>>("/api/v1/holds").await?, |holds| {
                        show::holds(holds)
                    })
                }
                HoldCommand::Release(NamedHold { target, name }) => {
                    let path = path(&name)?;
                    let client = target.open(Access::Change).await?;
                    let released = client.delete::<Value>(&path).await?;
                    client.show(&released, |_| format!("{name} is released"))?;
                    client.close().await;
                    Ok(())
                }
            }
        })
    }
}

/// A Unix timestamp, from one or from a duration.
fn expiry(text: &str) -> Result<u64, String> {
    if let Ok(timestamp) = text.parse() {
        return Ok(timestamp);
    }
    let from_now = humantime::parse_duration(text).map_err(|cause| {
        format!("{cause}. Give a duration such as 2h or 30days, or a Unix timestamp in seconds")
    })?;
    let now = UNIX_EPOCH.elapsed().map_err(|cause| format!("the clock is before 1970: {cause}"))?;
    Ok(now.as_secs().saturating_add(from_now.as_secs()))
}

/// A hold's name may have slashes: they are escaped, so that it stays one part of the path.
fn path(name: &str) -> anyhow::Result<String> {
    Ok(format!("/api/v1/holds/{}", part(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `hold release ../consumers/persister` deleted the hold of the persister.
    #[test]
    fn name_of_a_hold_stays_one_part_of_the_path() {
        assert_eq!(path("../consumers/persister").unwrap(), "/api/v1/holds/..%2Fconsumers%2Fpersister");
        assert_eq!(path("export/nightly").unwrap(), "/api/v1/holds/export%2Fnightly");
        assert!(path("..").is_err() && path(".").is_err());
    }

    #[test]
    fn expires_is_a_duration_or_a_timestamp() {
        assert_eq!(expiry("1794975948"), Ok(1_794_975_948));
        let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
        let end = expiry("2h").unwrap();
        assert!((now + 7200..now + 7260).contains(&end), "{end}");
        for bad in ["", "soon", "-5", "2 fortnights"] {
            assert!(expiry(bad).unwrap_err().contains("such as 2h"), "{bad}");
        }
        assert_eq!(expiry(&format!("{}s", u64::MAX)), Ok(u64::MAX), "the node refuses it");
    }
}
