-- store::queue::queued_message
select {queued_columns}, {queue_position}
      from queue q where q.tenant_id = :tenant and q.session_id = :session and q.message_id = :message
