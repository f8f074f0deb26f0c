//! A grain that asks to move to another silo.

use emmer_core::SiloAddress;

use super::Ctx;

impl Ctx {
    /// Moves the grain to `silo` with its memory, once its running turns are over. Calls that wait
    /// follow it. It stays where it is if it is busy for half a minute, or `silo` does not take it;
    /// the log says why at `debug`.
    ///
    /// A grain whose move is under way gets no second one. States and journals move as they are in
    /// memory, and so do fields marked `#[carry]`; other fields are made again. A grain of a class
    /// marked `#[grain(stays)]` does not move.
    pub fn move_to(&self, silo: SiloAddress) {
        if let Some(activation) = self.activation() {
            activation.begin_move(std::future::ready(Some(silo)));
        }
    }

    /// As [`move_to`](Self::move_to), to the silo where placement would put the grain now.
    pub fn move_by_placement(&self) {
        let (Some(activation), Some(silo)) = (self.activation(), self.grains().calls()) else {
            return;
        };
        let (silo, moves) = (silo.clone(), activation.clone());
        activation.begin_move(async move {
            match silo.place_again(&moves).await {
                Ok(to) => Some(to).filter(|to| *to != silo.address),
                Err(why) => {
                    let grain = moves.title();
                    tracing::debug!(grain, %why, "no silo was chosen for a grain that moves");
                    None
                }
            }
        });
    }
}
