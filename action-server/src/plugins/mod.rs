//! Parts that perform actions with programs of the sandbox's own, which not every image has. What is missing is told in the
//! action's observation.

pub(crate) mod jupyter;
