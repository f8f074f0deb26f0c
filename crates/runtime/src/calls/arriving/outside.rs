//! Calls from outside the cluster: the parts of them that are believed, and the rules that they
//! have to pass.
//!
//! A gateway checks the calls of its clients. If no class of its own has the called method, it
//! marks the call, and the silo that hosts the grain checks it.

use emmer_core::GrainId;
use emmer_net::transport::Connection;
use emmer_net::warn_seldom;
use emmer_wire::{CallChain, ContextError, OUTSIDE_KEY, PeerKind, RequestContext, RequestHeader};

use super::arrived::Arrived;
use crate::access::{ClientCall, Identity, Known};
use crate::calls::Calls;
use crate::turn::{Failure, Rejection};

impl Calls {
    /// Checks a client's call, or one that its gateway could not check: removes what a client may
    /// not send, and asks the rules.
    ///
    /// # Errors
    /// The call may not be made. Nothing was executed.
    #[inline]
    pub(super) fn admit(
        &self,
        connection: &Connection,
        header: &mut RequestHeader,
    ) -> Result<(), Failure> {
        match connection.peer {
            PeerKind::Client(_) => self.admit_client(connection, header),
            _ if header.chain.context().is_empty() => Ok(()),
            _ => self.admit_passed_on(header),
        }
    }

    fn admit_client(
        &self,
        connection: &Connection,
        header: &mut RequestHeader,
    ) -> Result<(), Failure> {
        let admitted = connection.admitted.as_ref();
        let admitted = admitted.and_then(|admitted| admitted.proof.downcast_ref::<Known>());
        // No turn of the cluster waits for a client's call, whatever it says.
        header.chain = match admitted {
            _ if !header.chain.context().is_empty() => {
                let context = header.chain.context().of_client();
                let context = match admitted {
                    Some(admitted) => admitted.identity.put(&context),
                    None => Ok(context),
                };
                CallChain::EMPTY.with_context(context.map_err(|why| no_room(&why))?)
            }
            Some(admitted) => admitted.plain.clone(),
            None => CallChain::EMPTY,
        };
        if !self.rules.are_some {
            return Ok(());
        }
        let identity = admitted.map(|admitted| &admitted.identity);
        let acting = self.look(&header.target, header.method, identity, header.chain.context())?;
        act(header, acting)
    }

    #[cold]
    fn admit_passed_on(&self, header: &mut RequestHeader) -> Result<(), Failure> {
        let context = header.chain.context();
        if context.get(OUTSIDE_KEY).is_none() || !self.knows_method(header) {
            return Ok(());
        }
        let (identity, context) = (Identity::read(context), context.without(OUTSIDE_KEY));
        let acting = self.look(&header.target, header.method, identity.as_ref(), &context)?;
        header.chain = std::mem::take(&mut header.chain).with_context(context);
        act(header, acting)
    }

    /// Returns the identity that is to go along instead, if there is one.
    fn look(
        &self,
        target: &GrainId,
        method: u32,
        identity: Option<&Identity>,
        context: &RequestContext,
    ) -> Result<Option<Identity>, Failure> {
        let class = self.host.classes.get(&target.grain_type());
        // A silo that knows the class checks it, because this one does not.
        let Some((class, name)) = class.and_then(|c| Some((c, c.method_name(method)?))) else {
            return Ok(None);
        };
        if class.is_internal(method) {
            return Err(Failure::refused(format!(
                "{name} cannot be called from outside the cluster"
            )));
        }
        let Some(authorize) = &self.rules.authorize else { return Ok(None) };
        authorize.ask(&ClientCall::new(identity, class.name(), target.key(), name, context))
    }

    /// The failure of a call as its caller hears it. A client that calls an unknown method hears
    /// the words of the rules, and not which methods exist.
    pub(super) fn told(&self, arrived: &Arrived, failure: Failure) -> Failure {
        let told = match &failure {
            Failure::Rejected { why: Rejection::NoSuchGrainType(_), .. } => {
                Rejection::NoSuchGrainType("no silo hosts a grain of this type".to_owned())
            }
            Failure::Rejected { why: Rejection::NoSuchMethod(_), .. } => {
                Rejection::NoSuchMethod("no silo hosts a class that has this method".to_owned())
            }
            _ => return failure,
        };
        if !arrived.is_of_client() {
            return failure;
        }
        if let Err(refused) = self.look_at_unknown(arrived) {
            return refused;
        }
        if self.rules.lists_types {
            return failure;
        }
        warn_seldom!(%failure, "a client calls what no silo has");
        Failure::rejected(told)
    }

    /// Asks the rules about a call of a method that no silo has.
    fn look_at_unknown(&self, arrived: &Arrived) -> Result<(), Failure> {
        let Some(authorize) = &self.rules.authorize else { return Ok(()) };
        let RequestHeader { target, chain, .. } = &arrived.header;
        let class = self.host.classes.get(&target.grain_type());
        let grain_type = class.map_or("", |class| class.name());
        let identity = Identity::read(chain.context());
        let (identity, context) = (identity.as_ref(), chain.context());
        let call = ClientCall::new(identity, grain_type, target.key(), "", context);
        authorize.ask(&call).map(|_| ())
    }

    fn knows_method(&self, header: &RequestHeader) -> bool {
        self.host.serves(&header.target, header.method)
    }

    /// A client's call that is passed on says so if this silo could not look at it.
    ///
    /// # Errors
    /// There is no room for it in what the client sends along.
    pub(super) fn mark_unlooked(
        &self,
        peer: PeerKind,
        header: &mut RequestHeader,
    ) -> Result<(), Failure> {
        if matches!(peer, PeerKind::Client(_)) && !self.knows_method(header) {
            let context =
                header.chain.context().with(OUTSIDE_KEY, "1").map_err(|why| no_room(&why))?;
            header.chain = std::mem::take(&mut header.chain).with_context(context);
        }
        Ok(())
    }
}

/// The identity replaces the client's and travels with the call.
fn act(header: &mut RequestHeader, acting: Option<Identity>) -> Result<(), Failure> {
    if let Some(identity) = acting {
        let context = identity.put(header.chain.context()).map_err(|why| no_room(&why))?;
        header.chain = std::mem::take(&mut header.chain).with_context(context);
    }
    Ok(())
}

fn no_room(why: &ContextError) -> Failure {
    Failure::refused(format!("what the client sends along leaves no room: {why}"))
}
