//! SIGHUP: reads the configuration again. What can change while the node runs does; what cannot is named in the log.

use std::path::{Path, PathBuf};

use anyhow::Context;
use sapwood_pruner::PrunerHandle;
use sapwood_server::{Access, ServerOptions, SharedTokens, TlsFiles, TlsReload};
use tokio::{signal::unix::Signal, task::JoinHandle};

use super::private;
use crate::config::Config;

/// Settings that are taken over. All others take effect at the next start.
const TAKEN_OVER: [&str; 6] = [
    "log.level",
    "servers.read_token",
    "servers.admin_token",
    "servers.certificate",
    "servers.key",
    "policy.",
];

/// The doors of a running node, as far as they can be changed.
#[derive(Clone)]
pub(crate) struct Doors {
    pub(super) tokens: SharedTokens,
    pub(super) tls: Vec<TlsReload>,
    pub(super) directory: PathBuf,
}

impl Doors {
    /// Refuses tokens that cannot be taken over. Changes nothing.
    fn check(&self, servers: &ServerOptions, served: (bool, bool)) -> anyhow::Result<()> {
        for (serve, listen) in [(served.0, &servers.grpc), (served.1, &servers.http)] {
            if serve {
                Access::new(servers.tokens.clone(), listen.address)?;
            }
        }
        private::check_tokens(&servers.tokens, &self.directory)
    }

    /// Takes over tokens and certificate, which have been checked.
    fn reload(&self, servers: &ServerOptions) -> anyhow::Result<()> {
        if let Some(files) = &servers.http.tls {
            private::warn_if_key_is_open(files);
            self.reload_tls(files)?;
        }
        self.tokens.replace(private::tokens(servers.tokens.clone(), &self.directory)?);
        Ok(())
    }

    fn reload_tls(&self, files: &TlsFiles) -> anyhow::Result<()> {
        self.tls.iter().try_for_each(|tls| tls.reload(files)).context("servers.certificate")
    }
}

/// What reads the configuration again.
pub(crate) struct Reload {
    /// The file that was named on the command line, if one was.
    pub(crate) file: Option<PathBuf>,
    /// What is in effect.
    pub(crate) config: Config,
    /// How a configuration is read and checked.
    pub(crate) load: fn(Option<&Path>) -> anyhow::Result<Config>,
    /// Sets the level of the log.
    pub(crate) set_level: fn(&str) -> anyhow::Result<()>,
    pub(crate) doors: Doors,
    pub(crate) pruner: PrunerHandle,
}

impl Reload {
    /// Reads the configuration again at every SIGHUP, until the task is ended.
    pub(crate) fn at_each(mut self, mut hangups: Signal) -> JoinHandle<()> {
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                match self.reload().await {
                    Ok(()) => tracing::info!("SIGHUP: the configuration was read again"),
                    Err(error) => {
                        tracing::error!("SIGHUP: the configuration is not taken over: {error:#}");
                    }
                }
            }
        })
    }

    async fn reload(&mut self) -> anyhow::Result<()> {
        let new = (self.load)(self.file.as_deref())?;
        if let Some(file) = Config::file(self.file.as_deref()) {
            private::warn_if_configuration_is_open(&file);
        }
        let servers = new.servers.options()?;
        // What can fail comes first, so that a configuration that is wrong changes nothing. Its certificate was looked at when it was read.
        self.doors.check(&servers, (self.config.servers.grpc, self.config.servers.http))?;
        if new.policy != self.config.policy {
            let policy = self.pruner.reconfigure(new.policy()?).await.context("policy")?;
            for difference in policy.differences() {
                tracing::warn!("SIGHUP: {difference}");
            }
        }
        self.doors.reload(&servers)?;
        (self.set_level)(&new.log.level)?;
        // A certificate takes the place of another one; TLS itself is not begun or ended.
        let tls_begins_or_ends = servers.http.tls.is_none() != self.doors.tls.is_empty();
        for setting in changed(&self.config, &new)? {
            let at_the_next_start = setting == "servers.certificate" && tls_begins_or_ends;
            if at_the_next_start || !TAKEN_OVER.iter().any(|taken| setting.starts_with(taken)) {
                tracing::warn!("SIGHUP: {setting} has changed and takes effect at the next start");
            }
        }
        self.config = new;
        Ok(())
    }
}

/// The names of settings that differ.
fn changed(old: &Config, new: &Config) -> anyhow::Result<Vec<String>> {
    let (old, new) = (toml::Table::try_from(old)?, toml::Table::try_from(new)?);
    let mut names = Vec::new();
    for (section, settings) in &new {
        let Some(settings) = settings.as_table() else { continue };
        let before = old.get(section);
        for (name, value) in settings {
            if before.and_then(|before| before.get(name)) != Some(value) {
                names.push(format!("{section}.{name}"));
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_named_and_not_shown() {
        let old = Config::default();
        let mut new = Config::default();
        assert_eq!(changed(&old, &new).unwrap(), Vec::<String>::new());
        new.servers.admin_token = "a-secret-that-is-not-shown".into();
        new.store.block_cache_mib += 1;
        assert_eq!(changed(&old, &new).unwrap(), ["servers.admin_token", "store.block_cache_mib"]);
    }
}
