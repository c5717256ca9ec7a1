//! Reading the configuration: what is wrong is named, with what was probably meant.

use anyhow::{Context, anyhow, bail};
use toml::{Table, Value};

use super::{Config, document::MEANINGS};

const PREFIX: &str = "SAPWOOD_";

/// Reads a file's text, overridden by the environment.
pub(super) fn read(
    text: &str,
    environment: impl Iterator<Item = (String, String)>,
) -> anyhow::Result<Config> {
    let mut table: Table = toml::from_str(text)?;
    refuse_unknown(&table)?;
    let defaults = Table::try_from(Config::default())?;
    for (variable, value) in environment {
        let Some(key) = key_of(&variable).with_context(|| variable.clone())? else { continue };
        let Some((of, name)) = key.split_once('.') else { continue };
        let section = table.entry(of).or_insert_with(|| Value::Table(Table::new()));
        let Some(section) = section.as_table_mut() else { bail!("{key} is not a section") };
        let is_text = defaults.get(of).and_then(|of| of.get(name)).is_some_and(Value::is_str);
        section.insert(name.to_owned(), parse_value(&value, is_text));
    }
    Config::deserialize_from(table)
}

impl Config {
    fn deserialize_from(table: Table) -> anyhow::Result<Self> {
        // Errors of a table name no key, those of a section do.
        for (name, section) in &table {
            let alone = Table::from_iter([(name.clone(), section.clone())]);
            alone.try_into::<Config>().with_context(|| format!("section {name}"))?;
        }
        Ok(table.try_into()?)
    }
}

fn refuse_unknown(table: &Table) -> anyhow::Result<()> {
    for (section, settings) in table {
        if !is_known(section) {
            return Err(unknown(section));
        }
        let Some(settings) = settings.as_table() else { bail!("{section} is a section: write [{section}]") };
        for name in settings.keys() {
            let key = format!("{section}.{name}");
            if !is_known(&key) {
                return Err(unknown(&key));
            }
        }
    }
    Ok(())
}

fn is_known(key: &str) -> bool {
    MEANINGS.iter().any(|(known, _)| *known == key)
}

/// There is no such key; which one was meant?
fn unknown(key: &str) -> anyhow::Error {
    let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let likeness = |known: &str| {
        // A setting without its section, or with a wrong one, is recognised by its own name.
        strsim::jaro_winkler(known, key).max(0.95 * strsim::jaro_winkler(&last(known), &last(key)))
    };
    let nearest = MEANINGS
        .iter()
        .map(|(known, _)| (likeness(known), known))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .filter(|(likeness, _)| *likeness > 0.7);
    match nearest {
        Some((_, known)) => anyhow!("there is no setting {key}: did you mean {known}?"),
        None => anyhow!("there is no setting {key}: `sapwood config` prints all there are"),
    }
}

/// The setting a variable stands for. `None` if it is that of another program.
fn key_of(variable: &str) -> anyhow::Result<Option<String>> {
    let Some(rest) = variable.strip_prefix(PREFIX) else { return Ok(None) };
    let rest = rest.to_lowercase();
    let Some((section, name)) = rest.split_once('_') else { return Ok(None) };
    if !is_known(section) {
        return Ok(None);
    }
    let key = format!("{section}.{name}");
    if is_known(&key) { Ok(Some(key)) } else { Err(unknown(&key)) }
}

/// A value as TOML has it, or a plain text. Where the setting `is_text`, only a quoted one is not taken as it is: a password may look like
/// a number.
fn parse_value(text: &str, is_text: bool) -> Value {
    let parsed = toml::from_str::<Table>(&format!("value = {text}"));
    let parsed = parsed.ok().and_then(|mut table| table.remove("value"));
    let parsed = parsed.filter(|value| value.is_str() || !is_text);
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}
