//! For hosts that call the model themselves: the next prompt, token counts, reports of calls, and
//! exported messages.

pub mod count;
pub mod export;
mod prepare;
mod record;
pub mod render;
mod take_queue;
