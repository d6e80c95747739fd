-- store::commit::copy_blobs: in the order of the key, so that the index by blob is not read
insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
select :tenant, :session, b.message_id, b.idx, b.blob_id
  from messages m
  join lateral (select * from part_blobs b
                 where b.tenant_id = :tenant and b.session_id = :source and b.message_id = m.message_id
                 order by b.idx, b.blob_id offset 0) b on true
 where m.tenant_id = :tenant and m.session_id = :source and m.seq > :copied_after and m.seq <= :copied_up_to and {accepted}
