//! The periods of silos that look after each other.

use emmer_runtime::SiloOptions;

/// By how much everything takes longer.
const SLOWER: u32 = 30;

/// Lets silos look after each other thirty times less often, for a test in which much time passes:
/// `world.cluster(3, |silo| silo.configure(emmer::test::at_rest))`. A day then costs a thirtieth. A
/// silo that is killed is still found at once, by its connections; one that falls silent is found
/// after minutes.
pub fn at_rest(options: &mut SiloOptions) {
    let membership = &mut options.membership;
    for time in [
        &mut membership.probe_period,
        &mut membership.probe_timeout,
        &mut membership.min_probe_timeout,
        &mut membership.max_probe_timeout,
        &mut membership.death_vote_expiration_timeout,
        &mut membership.table_refresh_timeout,
        &mut membership.i_am_alive_table_publish_timeout,
        &mut membership.min_i_am_alive_publish_timeout,
        &mut membership.vote_hold,
        &mut membership.death_gather,
        &mut membership.fence_timeout,
        &mut membership.fence_table_timeout,
    ] {
        *time *= SLOWER;
    }
    options.load_period *= SLOWER;
}
