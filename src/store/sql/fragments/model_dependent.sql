-- What of a live transcript depends on the model that is called, beside what the counters tell. Media in tool results are not
-- counted apart: there are some if a part refers to a blob. Neither are items of a provider's own. The subqueries are ordered so that they are
-- read by the key.
coalesce((select true from part_blobs b where b.tenant_id = :tenant and b.session_id = r.session_id
                 order by b.message_id, b.idx, b.blob_id limit 1), false) as has_blobs,
       coalesce((select true from parts i where i.tenant_id = :tenant and i.session_id = r.session_id and i.kind = 'provider_item'
                  order by i.message_id limit 1), false) as has_items
