-- What the last call measured, beside the tokens that V1 keeps: for which model, how much of the prompt the provider's cache holds, when,
-- what was predicted for it, and how fast prompts grow. The program before it writes none of this; an anchor without a model is
-- of no use to the one after it, which estimates until the next call.

alter table session_run
  add column anchor_model     text,
  add column anchor_cached    int,
  add column anchor_at        timestamptz,
  add column anchor_estimated int,
  add column anchor_basis     smallint check (anchor_basis between 1 and 4),  -- 1 actual, 2 calibrated, 3 tokenizer, 4 heuristic
  add column growth           double precision check (growth >= 0);           -- tokens from prompt to prompt, the last ones weighing most
