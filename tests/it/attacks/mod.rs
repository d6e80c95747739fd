//! Attacks on a serving process: requests that are invalid, too large, too many or too slow. During each attack, the
//! turns of another client complete, the memory of the server stays bounded and nothing panics. Each attack lasts one
//! second; `script/attacks` runs them for 20 seconds and prints their effects.

mod bombs;
mod floods;
mod memory;
mod quotas;
mod requests;
mod siege;
mod slow;
mod wire;
