-- store::stored_bytes::of_sessions
select ((select coalesce(sum(octet_length(body) + coalesce(octet_length(rest), 0)), 0) from parts
          where tenant_id = :tenant and session_id = any(:sessions))
      + (select coalesce(sum(octet_length(info)), 0) from messages where tenant_id = :tenant and session_id = any(:sessions))
      + (select coalesce(sum(octet_length(payload)), 0) from events where tenant_id = :tenant and session_id = any(:sessions))
      + (select coalesce(sum(octet_length(body) + coalesce(octet_length(request), 0)), 0) from queue
          where tenant_id = :tenant and session_id = any(:sessions))
      + (select coalesce(sum(octet_length(config)), 0) from session_revisions where tenant_id = :tenant and session_id = any(:sessions))
      + (select coalesce(sum(octet_length(request)), 0) from turns where tenant_id = :tenant and session_id = any(:sessions))
      + (select coalesce(sum(coalesce(octet_length(request), 0) + coalesce(octet_length(edited_arguments), 0)), 0)
           from tool_calls where tenant_id = :tenant and session_id = any(:sessions))
      + (select coalesce(sum(octet_length(info)), 0) from compactions where tenant_id = :tenant and session_id = any(:sessions))
      + (select coalesce(sum(octet_length(request_id) + octet_length(req_hash) + octet_length(result)), 0) from idempotency
          where tenant_id = :tenant and session_id = any(:sessions)))::bigint as bytes
