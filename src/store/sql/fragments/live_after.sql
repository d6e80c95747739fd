((select s.* from spoken s where s.seq > :place order by s.seq limit :limit)
        union all (select s.* from summary s where s.place > :place) order by place limit :limit)
