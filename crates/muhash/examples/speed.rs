//! How long each operation takes here: `cargo run --release -p sapwood-muhash --example speed`.

use std::hint::black_box;
use std::time::Instant;

use sapwood_muhash::MuHash;

const ROUNDS: usize = 41;

fn main() {
    // A pay-to-public-key coin is 117 bytes with its outpoint, height and value; younger kinds are about 75.
    let coin = [0x5a; 117];
    let mut set = MuHash::new();
    set.insert(b"first");
    set.remove(b"second");
    let other = set.clone();
    let stored = set.to_bytes();

    measure("insert", 500, || set.insert(black_box(&coin)));
    measure("remove", 500, || set.remove(black_box(&coin)));
    measure("combine", 500, || set.combine(black_box(&other)));
    measure("equal", 500, || black_box(set == other));
    measure("to_bytes", 500, || black_box(set.to_bytes()));
    measure("from_bytes", 500, || MuHash::from_bytes(black_box(&stored)).is_ok());
    measure("finalize", 1, || black_box(set.finalize()));
}

/// Prints the fastest and the middle round: on a busy machine the fastest is nearer to the truth.
fn measure<T>(name: &str, repeat: u32, mut run: impl FnMut() -> T) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..repeat {
                black_box(run());
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(repeat)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:10} best {:>9.0} ns   median {:>9.0} ns", rounds[0], rounds[ROUNDS / 2]);
}
