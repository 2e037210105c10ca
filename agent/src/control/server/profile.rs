//! `profile`: a session of the sampler.

use super::Server;
use super::wire::Wire;
use crate::error::Failure;
use crate::profile::Spec;

impl Server {
    /// Runs a session and sends what came of it.
    pub(super) async fn profile(&self, _spec: Spec, _wire: &mut Wire) -> Result<(), Failure> {
        let _permit = self.profiles.try_acquire();
        Err(Failure::new(format!("profiles are not there yet ({:?})", self.reduced)))
    }
}
