//! The thinking of contextd: pure functions from model to model, without IO, clock or async.
