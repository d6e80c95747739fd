'@' || extract(epoch from pg_postmaster_start_time())
