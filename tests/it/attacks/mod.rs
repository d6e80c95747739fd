//! Attacks on a serving process: what a client can send that is wrong, too much or too slow. While each
//! goes on, another client's turns finish, the server's memory is bounded and nothing panics. They last a
//! second each; `script/attacks` lets them last 20 and prints what they did.

mod bombs;
mod floods;
mod memory;
mod quotas;
mod requests;
mod siege;
mod slow;
mod wire;
