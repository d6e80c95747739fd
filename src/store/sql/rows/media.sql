-- store::rows::media: a medium's body is the blob that holds its content
insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
select r.tenant_id, r.session_id, u.message, u.idx, u.body
  from session_run r, unnest(:part_messages::text[], :part_positions::int[], :part_kinds::text[], :part_bodies::text[])
                      as u(message, idx, kind, body)
 where u.kind = 'media'
   and r.tenant_id = :tenant and r.session_id = :session and {accepted}
