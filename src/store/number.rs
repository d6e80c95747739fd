//! The numbers with which columns represent the values of enums.

use tokio_postgres::Row;

use super::{Error, row::get};
use crate::{
    model::{
        Access, CancelCause, Category, CompactionState, Delivery, DropReason, Role, TokenBasis, ToolExecutor,
        UsagePurpose,
    },
    session::SessionState,
};

/// A value that a column represents as a number.
pub(super) trait Number: Sized {
    /// Its number.
    fn number(self) -> i16;

    /// The value with this number.
    fn of_number(number: i16) -> Result<Self, Error>;
}

/// Decodes a column with the number of a value.
pub(super) fn enum_value<T: Number>(row: &Row, column: &str) -> Result<T, Error> {
    T::of_number(get(row, column)?)
}

/// Declares the number of each value of an enum. The text names the enum in errors.
macro_rules! numbers {
    ($($what:literal $enum:ty { $($value:ident = $number:literal),+ $(,)? })+) => {$(
        impl Number for $enum {
            fn number(self) -> i16 {
                match self {
                    $(Self::$value => $number),+
                }
            }

            fn of_number(number: i16) -> Result<Self, Error> {
                match number {
                    $($number => Ok(Self::$value),)+
                    other => Err(Error::Corrupt(format!(concat!("unknown ", $what, " {}"), other))),
                }
            }
        }
    )+};
}

numbers! {
    "session state" SessionState { Idle = 0, Running = 1, AwaitingTools = 2, Deleted = 3 }
    "role" Role { System = 1, User = 2, Assistant = 3, Tool = 4 }
    "category" Category {
        User = 1, Assistant = 2, Reasoning = 3, ToolCalls = 4, ToolResults = 5, Media = 6, Summary = 7, Pinned = 8
    }
    "cancel cause" CancelCause { Requested = 1, Interrupted = 2, Disconnected = 3, SessionDeleted = 4 }
    "token basis" TokenBasis { Actual = 1, Calibrated = 2, Tokenizer = 3, Heuristic = 4 }
    "usage purpose" UsagePurpose { Turn = 1, Compaction = 2 }
    "delivery" Delivery { Asap = 1, WhenIdle = 2, Interrupt = 3 }
    "drop reason" DropReason { SessionDeleted = 1, Superseded = 2, TooLarge = 3, Unreadable = 4 }
    "tool call executor" ToolExecutor { Host = 1, Mcp = 2 }
    // A plan is not stored.
    "compaction status" CompactionState { Planned = 0, Running = 1, Applied = 2, Failed = 3, Reverted = 4 }
    "access" Access { Read = 1, Write = 2, Admin = 3, Operator = 4 }
}
