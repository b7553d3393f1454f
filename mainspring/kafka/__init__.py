"""The edge to Kafka: topics made and checked, buckets published; driver errors turned into ours once.

librdkafka does its work in threads of its own; what comes from them reaches the event loop as futures, and
nothing here blocks the loop.
"""
