-- store::commit::media: the blobs that parts refer to, whole outputs among them
insert into part_blobs (tenant_id, session_id, message_id, idx, blob_id)
select :tenant, :session, u.message, u.idx, u.blob
  from unnest(:blob_messages::text[], :blob_positions::int[], :blobs::text[]) as u(message, idx, blob)
 where {accepted}
