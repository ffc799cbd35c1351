"""What share groups keep in one broker."""

from broker_core.broker.share.broker_part import ShareBroker

PART = ShareBroker
