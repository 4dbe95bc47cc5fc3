//! Parts that perform actions with programs of the sandbox, which not every image has. A missing
//! program is an error observation of the action.

pub(crate) mod jupyter;
