//! Makes a failing sequence short.

use super::op::Step;

/// Leaves out steps, then items of steps, then pairs of steps, as long as the sequence still fails. `fails` gets each shorter
/// sequence.
pub fn shrink(mut steps: Vec<Step>, mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut before = usize::MAX;
    while size(&steps) < before {
        before = size(&steps);
        steps = fewer_steps(steps, &mut fails);
        steps = fewer_items(steps, &mut fails);
        steps = fewer_pairs(steps, &mut fails);
    }
    steps
}

fn size(steps: &[Step]) -> usize {
    steps.iter().map(|step| 1 + step.plan.items()).sum()
}

fn without(steps: &[Step], left_out: impl Fn(usize) -> bool) -> Vec<Step> {
    let kept = steps.iter().enumerate().filter(|(place, _)| !left_out(*place));
    kept.map(|(_, step)| step.clone()).collect()
}

/// Half of the sequence at a time, then a quarter, then down to single steps.
fn fewer_steps(mut steps: Vec<Step>, fails: &mut impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut chunk = (steps.len() / 2).max(1);
    loop {
        let mut end = steps.len();
        // From the back: what comes late depends on what came early, not the other way round.
        while end > 0 {
            let start = end.saturating_sub(chunk);
            let candidate = without(&steps, |place| (start..end).contains(&place));
            if fails(&candidate) {
                steps = candidate;
            }
            end = start;
        }
        if chunk == 1 {
            return steps;
        }
        chunk /= 2;
    }
}

fn fewer_items(mut steps: Vec<Step>, fails: &mut impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut place = 0;
    while place < steps.len() {
        let with = |plan| {
            let mut candidate = steps.clone();
            candidate[place].plan = plan;
            candidate
        };
        match steps[place].plan.smaller().into_iter().map(with).find(|candidate| fails(candidate)) {
            Some(candidate) => steps = candidate,
            None => place += 1,
        }
    }
    steps
}

/// A block and the rollback that takes it back can only be left out together.
fn fewer_pairs(mut steps: Vec<Step>, fails: &mut impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    const FEW: usize = 20;
    let mut first = 0;
    while first < steps.len() && steps.len() <= FEW {
        let pairs =
            (first + 1..steps.len()).map(|second| without(&steps, |place| place == first || place == second));
        match pairs.into_iter().find(|candidate| fails(candidate)) {
            Some(candidate) => steps = candidate,
            None => first += 1,
        }
    }
    steps
}
