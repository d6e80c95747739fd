case when m.is_summary and m.message_id = (select k.summary_message from in_force k) then null
            when m.is_summary and exists (select from stack k where k.summary_message = m.message_id) then
              (select k.compaction_id from stack k where k.active_from_seq > m.seq order by k.active_from_seq limit 1)
            when m.is_summary then
              (select c.compaction_id from compactions c
                where c.tenant_id = :tenant and c.session_id = :session and c.summary_message = m.message_id)
            when (not m.pinned or (select k.hides_pinned from in_force k)) and m.seq between (select k.from_seq from in_force k) and (select k.to_seq from in_force k)
                 and m.seq <> all ((select k.kept from in_force k)::bigint[]) then
              (select k.compaction_id from stack k
                where m.seq between k.from_seq and k.to_seq and m.seq <> all (k.kept) and (not m.pinned or k.hides_pinned)
                order by k.active_from_seq limit 1) end
