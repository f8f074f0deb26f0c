//! Memory that the machines of one process share, so that thousands of them fit into a simulation.
//!
//! Silos that apply the same delta to equal views get equal views. Where one process runs them all,
//! a [`Memo`] lets one silo compute the view, and the order of the tree, for the others. It changes
//! no result. A single silo has none.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use emmer_core::SiloAddress;

use crate::config::Config;
use crate::delta::{Delta, Misfit, Tree};
use crate::view::View;

/// Number of views that are remembered before those without a holder are forgotten.
const VIEWS_MAX: usize = 256;

/// Number of trees that are kept.
const TREES_KEPT: usize = 8;

/// The steps that some machine of this process has computed.
#[derive(Default)]
pub struct Memo {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The options of the machines that came last.
    config: Option<Arc<Config>>,
    /// By the digest of the view before and of the view after, and by the version after.
    views: BTreeMap<(u64, u64, u64), Weak<View>>,
    /// By version, digest and root; the latest last.
    trees: VecDeque<(u64, u64, SiloAddress, Arc<Tree>)>,
}

/// The memo of a machine, if it has one. It is no part of the machine's state.
#[derive(Clone, Default)]
pub(crate) struct Shared(Option<Arc<Memo>>);

impl Shared {
    pub(crate) const fn with(memo: Arc<Memo>) -> Self {
        Self(Some(memo))
    }

    /// The view that follows `base` by `delta`.
    pub(crate) fn apply(&self, delta: &Delta, base: &View) -> Result<Arc<View>, Misfit> {
        let Some(memo) = &self.0 else { return delta.apply(base).map(Arc::new) };
        let key = (base.digest(), delta.digest(), delta.version());
        let mut known = memo.known.lock().unwrap_or_else(PoisonError::into_inner);
        let follows = |view: &Arc<View>| {
            delta.version() == base.version() + 1 && view.table_version() == delta.table()
        };
        if let Some(view) = known.views.get(&key).and_then(Weak::upgrade).filter(follows) {
            return Ok(view);
        }
        let view = Arc::new(delta.apply(base)?);
        known.remember(key, &view);
        Ok(view)
    }

    /// A commit on top of `base` led to `view`.
    pub(crate) fn note(&self, base: &View, view: &Arc<View>) {
        if let Some(memo) = &self.0 {
            let key = (base.digest(), view.digest(), view.version());
            memo.known.lock().unwrap_or_else(PoisonError::into_inner).remember(key, view);
        }
    }

    /// The tree that starts at `root` over `view`, the view that `delta` led to.
    pub(crate) fn tree(&self, delta: &Delta, view: &View, root: &SiloAddress) -> Arc<Tree> {
        let Some(memo) = &self.0 else { return Arc::new(Tree::new(delta, view, root)) };
        let (version, digest) = (delta.version(), delta.digest());
        let mut known = memo.known.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.trees.iter().find(|(v, d, r, _)| (*v, *d, r) == (version, digest, root));
        if let Some((.., tree)) = same {
            return tree.clone();
        }
        let tree = Arc::new(Tree::new(delta, view, root));
        if known.trees.len() >= TREES_KEPT {
            known.trees.pop_front();
        }
        known.trees.push_back((version, digest, *root, tree.clone()));
        tree
    }
}

impl Memo {
    /// Options equal to `config`: one copy for all machines that have the same.
    pub(crate) fn config(&self, config: Arc<Config>) -> Arc<Config> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &known.config {
            Some(same) if *same == config => same.clone(),
            _ => known.config.insert(config).clone(),
        }
    }
}

impl Known {
    fn remember(&mut self, key: (u64, u64, u64), view: &Arc<View>) {
        if self.views.len() >= VIEWS_MAX {
            self.views.retain(|_, view| view.strong_count() > 0);
        }
        if self.views.len() < VIEWS_MAX {
            self.views.insert(key, Arc::downgrade(view));
        }
    }
}

impl PartialEq for Shared {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Shared {}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a memo" } else { "no memo" })
    }
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}
