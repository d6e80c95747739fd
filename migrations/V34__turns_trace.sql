-- Where in a trace a turn began (W3C traceparent, and tracestate and baggage if there are any, in lines), so that whoever goes on with it
-- goes on with that trace. The program before it neither writes nor reads it: its turns begin a trace on each replica.
-- oldest-program: 13
alter table turns add column trace text;
