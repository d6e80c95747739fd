-- Which version of the transcript an append was written behind, on its first message: what tells whether the report of a host's own call
-- still describes the prompt that it was made from. The program before it writes none; such a report is counted, and anchors nothing.

alter table messages add column behind bigint;
