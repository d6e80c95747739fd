-- store::queue::enqueue_unremembered: a request without an id repeats none
with queued as (
{into_queue} null
  {gate}
{what_it_met}
