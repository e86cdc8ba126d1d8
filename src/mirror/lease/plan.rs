//! The leader's plan: which member gets which slots in this generation.
//!
//! Pure. Even (sizes differ by at most one), sticky (a member keeps what it owns up to its share), spread (consecutive
//! slots, which are the partitions of one topic, go to different members).

use super::slots::{SLOTS, SlotSet};

/// A member as the leader knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Member id, unique in the generation.
    pub member_id: String,
    /// Instance id; orders the members, so that the plan does not change with each restart.
    pub instance_id: String,
    /// What it says it holds.
    pub owned: SlotSet,
    /// Generation of that; the higher one wins where two claim a slot.
    pub generation: i32,
}

/// Gives each member its slots; the result is in the order of `members`.
///
/// A slot that another present member holds is given to nobody in this generation: its holder, who does not get it either,
/// drops it and rejoins, and the next plan gives it away (two generations, else the new owner starts before the old one has
/// read its answer). Applied until nobody holds what it was not given, the sizes differ by at most one.
pub fn plan(members: &[Member]) -> Vec<(String, SlotSet)> {
    if members.is_empty() {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&index| (&members[index].instance_id, &members[index].member_id));

    let claims = settle_claims(members, &order);
    let quotas = quotas(&claims, &order);
    let mut target = keep(&claims, &quotas, &order);
    deal(&mut target, &quotas, &order);

    let mut plan = Vec::with_capacity(members.len());
    for (index, member) in members.iter().enumerate() {
        let held_by_others = members
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index)
            .fold(SlotSet::EMPTY, |sum, (_, other)| sum.union(&other.owned))
            // Whose claim won may go on: the losers slept through the generation that gave it away.
            .minus(&claims[index]);
        plan.push((member.member_id.clone(), target[index].minus(&held_by_others)));
    }
    plan
}

/// What each member rightly holds: of two claims on a slot the later generation's counts.
fn settle_claims(members: &[Member], order: &[usize]) -> Vec<SlotSet> {
    let mut claims = vec![SlotSet::EMPTY; members.len()];
    for slot in SlotSet::ALL.iter() {
        let mut winner: Option<usize> = None;
        for &index in order.iter().filter(|&&index| members[index].owned.contains(slot)) {
            if winner.is_none_or(|best| members[index].generation > members[best].generation) {
                winner = Some(index);
            }
        }
        if let Some(winner) = winner {
            claims[winner].insert(slot);
        }
    }
    claims
}

/// Sizes of the shares. Where they do not come out even, those that hold most get one more, so that nothing moves for it.
fn quotas(claims: &[SlotSet], order: &[usize]) -> Vec<usize> {
    let (least, extra) = (usize::from(SLOTS) / order.len(), usize::from(SLOTS) % order.len());
    let mut by_size = order.to_vec();
    by_size.sort_by_key(|&index| std::cmp::Reverse(claims[index].len()));
    let mut quotas = vec![least; claims.len()];
    for &index in by_size.iter().take(extra) {
        quotas[index] += 1;
    }
    quotas
}

/// What each member keeps: of too many, first the slots that a plan from nothing would give it, then every so-manieth of
/// the others, so that what is given up is spread over the topics too.
fn keep(claims: &[SlotSet], quotas: &[usize], order: &[usize]) -> Vec<SlotSet> {
    let mut kept = vec![SlotSet::EMPTY; claims.len()];
    for (rank, &index) in order.iter().enumerate() {
        let ideal = (0..SLOTS).filter(|slot| usize::from(*slot) % order.len() == rank).collect();
        kept[index] = claims[index].intersect(&ideal).iter().take(quotas[index]).collect();
        let others: Vec<u8> = claims[index].minus(&kept[index]).iter().collect();
        let wanted = (quotas[index] - kept[index].len()).min(others.len());
        for nth in 0..wanted {
            kept[index].insert(others[nth * others.len() / wanted]);
        }
    }
    kept
}

/// Deals the slots nobody keeps: slot i to member i mod n if it has room, else to the one with most room.
fn deal(target: &mut [SlotSet], quotas: &[usize], order: &[usize]) {
    let mut free = target.iter().fold(SlotSet::ALL, |free, kept| free.minus(kept));
    for slot in free.iter() {
        let ideal = order[usize::from(slot) % order.len()];
        if target[ideal].len() < quotas[ideal] {
            target[ideal].insert(slot);
            free.remove(slot);
        }
    }
    for slot in free.iter() {
        // The first of equals after the slot's ideal owner: equals take turns.
        let turns = (0..order.len()).map(|turn| order[(usize::from(slot) + turn) % order.len()]);
        let roomiest = turns.rev().max_by_key(|&index| quotas[index] - target[index].len());
        if let Some(index) = roomiest {
            target[index].insert(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(name: &str, owned: SlotSet, generation: i32) -> Member {
        Member { member_id: format!("{name}-id"), instance_id: name.to_owned(), owned, generation }
    }

    fn every(step: u8, first: u8) -> SlotSet {
        (0..SLOTS).filter(|slot| slot % step == first).collect()
    }

    /// Plans and lets the members follow until nothing changes; counts the generations.
    fn follow(members: &mut [Member]) -> usize {
        for generation in 1..10 {
            let plan = plan(members);
            let mut all = SlotSet::EMPTY;
            for (member, (id, slots)) in members.iter_mut().zip(&plan) {
                assert_eq!(&member.member_id, id);
                assert!(all.intersect(slots).is_empty(), "a slot is given twice");
                all = all.union(slots);
            }
            for (index, (_, slots)) in plan.iter().enumerate() {
                for (other, former) in members.iter().enumerate().filter(|(other, _)| *other != index) {
                    let early = slots.intersect(&former.owned);
                    let won = members[index].owned.intersect(&early);
                    assert_eq!(early, won, "{index} gets what {other} still holds");
                }
            }
            let settled = members.iter().zip(&plan).all(|(member, (_, slots))| member.owned == *slots);
            if settled {
                return generation;
            }
            for (member, (_, slots)) in members.iter_mut().zip(plan) {
                member.owned = slots;
                member.generation += 1;
            }
        }
        panic!("never settles: {members:?}");
    }

    #[test]
    fn from_nothing_slots_are_dealt_in_turn() {
        for n in [1, 2, 3, 7, 16] {
            let members: Vec<Member> = (0..n).map(|m| member(&format!("w{m:03}"), SlotSet::EMPTY, -1)).collect();
            for (rank, (_, slots)) in (0u8..).zip(plan(&members)) {
                assert_eq!(slots, every(n, rank), "{n} members");
            }
        }
        assert!(plan(&[]).is_empty());
    }

    #[test]
    fn a_newcomer_waits_one_generation_and_the_old_owner_gives_up_every_second_slot() {
        let mut members = [member("a", SlotSet::ALL, 4), member("b", SlotSet::EMPTY, -1)];
        let first = plan(&members);
        assert_eq!(first[0].1, every(2, 0));
        assert_eq!(first[1].1, SlotSet::EMPTY);
        assert_eq!(follow(&mut members), 3);
        assert_eq!(members[1].owned, every(2, 1));
    }

    #[test]
    fn a_dead_members_slots_are_given_at_once_and_the_others_keep_theirs() {
        let members = [member("a", every(3, 0), 4), member("c", every(3, 2), 4)];
        let plan = plan(&members);
        assert!(every(3, 0).is_subset(&plan[0].1) && every(3, 2).is_subset(&plan[1].1));
        assert_eq!((plan[0].1.len(), plan[1].1.len()), (120, 120));
    }

    #[test]
    fn the_later_generation_keeps_a_slot_that_two_claim() {
        let members = [member("a", every(2, 0), 3), member("b", SlotSet::ALL, 9)];
        let plan = plan(&members);
        assert_eq!(plan[0].1, SlotSet::EMPTY, "a lost its slots in its sleep");
        assert!(plan[1].1.is_subset(&SlotSet::ALL) && plan[1].1.len() == 120);
    }

    #[test]
    fn a_member_that_leaves_moves_nothing_between_the_others() {
        let mut members: Vec<Member> = (0..5).map(|m| member(&format!("w{m}"), SlotSet::EMPTY, -1)).collect();
        follow(&mut members);
        members.remove(2);
        for (member, (_, slots)) in members.iter().zip(plan(&members)) {
            assert!(member.owned.is_subset(&slots));
        }
    }

    proptest! {
        #[test]
        fn any_start_settles_evenly_within_three_generations(
            owners in prop::collection::vec(prop::option::of(0usize..9), 240), n in 1usize..9,
        ) {
            let mut members: Vec<Member> = (0..n).map(|m| member(&format!("w{m}"), SlotSet::EMPTY, 1)).collect();
            for (slot, owner) in (0u8..).zip(owners) {
                if let Some(member) = owner.and_then(|owner| members.get_mut(owner)) {
                    member.owned.insert(slot);
                }
            }
            let before = members.clone();
            prop_assert!(follow(&mut members) <= 3);
            let sizes: Vec<usize> = members.iter().map(|member| member.owned.len()).collect();
            prop_assert_eq!(sizes.iter().sum::<usize>(), 240);
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            // Sticky: nobody lost a slot without being over its share.
            for (old, new) in before.iter().zip(&members) {
                let kept = old.owned.intersect(&new.owned).len();
                prop_assert!(kept >= old.owned.len().min(240 / n), "kept {} of {}", kept, old.owned.len());
            }
        }
    }
}
