-- store::turn_read::turns: before a seq. Tools, which are large, are left out of lists
select b.turn_id, b.state, b.run_state, b.request_id, b.request, b.started_at, b.ended_at, b.first_seq, b.last_seq, b.step_count,
       b.final_message, b.totals, b.outcome, b.revision, b.config, b.elapsed, b.steps_begun, b.late, b.page_rows
  from (select a.*, case when a.nth = 1 then a.whole_config end as config, count(*) over () as page_rows,
               row_number() over w as n,
               sum(octet_length(a.request) + coalesce(octet_length(a.outcome), 0)
                   + case when a.nth = 1 then octet_length(a.whole_config) else 0 end) over w as bytes
          from (select p.turn_id, p.state, p.run_state, p.request_id, p.request, p.started_at, p.ended_at, p.first_seq, p.last_seq,
                       p.step_count, p.final_message, p.totals, p.outcome, p.revision, p.config as whole_config, p.elapsed,
                       p.steps_begun, p.late, row_number() over (partition by p.revision order by p.first_seq desc) as nth
                  from (select {turn_columns}
                  from (select * from turns n
                         where n.tenant_id = :tenant and n.session_id = :session and n.first_seq < :before
                         order by n.first_seq desc limit :limit) t
                  join session_run r on r.tenant_id = :tenant and r.session_id = :session and r.state <> 3
                  left join {made_for}) p) a
        window w as (order by a.first_seq desc)) b
 where b.bytes <= :bytes or b.n = 1 order by b.first_seq desc
