"""Mainspring: cron at scale on Postgres, etcd and Kafka."""
