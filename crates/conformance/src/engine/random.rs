//! Random commits, compared with a plain map.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use sapwood_ledger::engine::{Engine, Maintenance, Scan, Table, WriteSet};

use super::rows::{Row, all, get_many, scan};
use crate::{EngineFactory, Place, state_machine::rng::Rng};

const SEEDS: u64 = 6;
const COMMITS: usize = 60;

type Map = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// Few keys, so that they meet: of one to three bytes from four.
fn key(rng: &mut Rng) -> Vec<u8> {
    let length = rng.between(0, 3);
    (0..length).map(|_| [0, 1, 0x7f, 0xff][rng.below(4) as usize]).collect()
}

fn table(rng: &mut Rng) -> Table {
    Table::ALL[rng.below(Table::ALL.len() as u64) as usize]
}

/// One change, to the set and to the map.
fn change(rng: &mut Rng, writes: &mut WriteSet, map: &mut Map) {
    let (table, key) = (table(rng), key(rng));
    match rng.below(10) {
        0..=5 => {
            let value = rng.bytes::<6>()[..rng.below(7) as usize].to_vec();
            writes.put(table, &key, &value);
            map.insert((table, key), value);
        }
        6..=8 => {
            writes.delete(table, &key);
            map.remove(&(table, key));
        }
        _ => {
            let to = self::key(rng);
            if key < to {
                writes.delete_range(table, &key, &to);
                map.retain(|(of, row), _| *of != table || *row < key || *row >= to);
            }
        }
    }
}

fn expected(map: &Map, table: Table, from: &[u8], to: Option<&[u8]>) -> Vec<Row> {
    let rows = map.range((Bound::Included((table, from.to_vec())), Bound::Unbounded));
    let inside = rows.take_while(|((of, key), _)| *of == table && to.is_none_or(|to| &key[..] < to));
    inside.map(|((_, key), value)| (key.clone(), value.clone())).collect()
}

fn compare(engine: &dyn Engine, map: &Map, rng: &mut Rng) {
    let view = engine.view().expect("a view");
    for table in Table::ALL {
        assert_eq!(all(&*view, table), expected(map, table, &[], None), "{}", table.name());
    }
    for _ in 0..4 {
        let (table, from, to) = (table(rng), key(rng), rng.chance(70).then(|| key(rng)));
        let mut rows = expected(map, table, &from, to.as_deref());
        let range = Scan { table, from: &from, to: to.as_deref(), reverse: false, fill_cache: true };
        assert_eq!(scan(&*view, &range), rows, "{range:?}");
        rows.reverse();
        assert_eq!(scan(&*view, &Scan { reverse: true, ..range.clone() }), rows, "{range:?}, backwards");
        let keys: Vec<Vec<u8>> = (0..rng.below(8)).map(|_| key(rng)).collect();
        let asked: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let values: Vec<_> = keys.iter().map(|key| map.get(&(table, key.clone())).cloned()).collect();
        assert_eq!(get_many(&*view, table, &asked), values, "{}: {keys:?}", table.name());
    }
}

fn sequence(place: &dyn Place, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut map = Map::new();
    let mut engine: Arc<dyn Engine> = place.open().expect("an engine");
    for number in 1..=COMMITS {
        let mut writes = WriteSet::new(number as u64);
        for _ in 0..rng.below(30) {
            change(&mut rng, &mut writes, &mut map);
        }
        engine.commit(&writes).expect("a commit");
        match rng.below(20) {
            0 => engine.maintain(Maintenance::Flush).expect("a flush"),
            1 => engine.maintain(Maintenance::Settle).expect("maintenance"),
            2 => {
                drop(engine);
                engine = place.open().expect("the same engine");
            }
            _ => {}
        }
        compare(&*engine, &map, &mut rng);
    }
}

/// Whatever is written, in whatever order, flushed and reopened at any moment: rows and their order are those of a plain map.
pub fn random_commits_agree_with_a_plain_map(factory: &dyn EngineFactory) {
    for seed in 0..SEEDS {
        sequence(&*factory.place(), seed);
    }
}
