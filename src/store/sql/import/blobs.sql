-- store::import::import_blobs: whole outputs, and the media of results
insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
select r.tenant_id, r.session_id, u.message, u.part, u.blob
  from session_run r, unnest(:blob_messages::text[], :blob_parts::int[], :blobs::text[]) as u(message, part, blob)
 where r.tenant_id = :tenant and r.session_id = :session and {accepted}
